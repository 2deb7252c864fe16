"""Every figure that the README states, as a command."""
