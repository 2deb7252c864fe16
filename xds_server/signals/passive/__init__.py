"""Signals from Envoy's access log: what requests met."""
