"""Signals to weights to snapshot to discovery."""
