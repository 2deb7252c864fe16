"""Every figure that the documents state, as a command."""
