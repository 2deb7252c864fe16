"""Readings of GPUs: values, faults and their wire format."""
