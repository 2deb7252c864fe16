"""Filters, scorers and pickers."""
