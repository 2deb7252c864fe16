"""Body bytes to model and prompt blocks."""
