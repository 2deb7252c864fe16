"""Forecasts of load signals: two small models that learn from the fleet's own recent signals."""
