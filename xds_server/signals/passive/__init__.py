"""Signals of finished requests: latency, faults, trust, hangs."""
