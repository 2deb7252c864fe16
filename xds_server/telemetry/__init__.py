"""Spans and metrics of weights, pushes and requests."""
