"""Keys of requests that may be repeated, and which of them are in flight."""
