"""Who is warm for a prompt."""
