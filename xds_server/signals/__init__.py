"""Sources of signals, each with a table or columns, and what joins them."""
