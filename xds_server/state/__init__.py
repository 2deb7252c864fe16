"""What survives a restart: the last good state and overrides."""
