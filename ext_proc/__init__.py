"""Request to prompt to prefix to pick to reply."""
