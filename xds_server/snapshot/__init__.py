"""Immutable Envoy resources, versioned by content."""
