"""An engine model, in virtual time or as a real HTTP server."""
