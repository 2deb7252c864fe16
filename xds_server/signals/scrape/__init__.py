"""Signals that engines publish: metrics pages, one file an engine kind."""
