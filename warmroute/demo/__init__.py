"""A deployment on loopback, its load, and the demo that compares."""
