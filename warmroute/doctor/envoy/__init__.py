"""Envoy: its configuration as frozen facts, and the rules about them."""
