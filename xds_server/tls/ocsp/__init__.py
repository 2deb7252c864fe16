"""OCSP staples: asked for, checked, kept."""
