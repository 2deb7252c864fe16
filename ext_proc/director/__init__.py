"""From a request to a pick: pools, prompts, sessions, what was sent where."""
