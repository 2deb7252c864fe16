"""Formulas: signals to scores to shares to integers. Pure, numpy over the whole fleet."""
