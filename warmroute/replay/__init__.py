"""Replays traces of requests through picks and simulated engines, in virtual time."""
