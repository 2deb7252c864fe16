"""From a request to its pick: pools, prompts, sessions, prompts in flight."""
