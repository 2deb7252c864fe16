"""Asking engines and exporters over HTTP/1.1: whatever they answer, it is bounded in bytes, work and time."""
