"""What both services share to run: servers, admin, TLS, telemetry, watched files."""
