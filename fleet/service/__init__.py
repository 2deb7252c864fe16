"""Infrastructure of both services: servers, admin, TLS, telemetry, watched files."""
