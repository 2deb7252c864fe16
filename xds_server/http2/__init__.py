"""Which engines speak HTTP/2 well enough to get requests over it."""
