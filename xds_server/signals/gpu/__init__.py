"""Signals of GPUs: agents' reports and DCGM pages."""
