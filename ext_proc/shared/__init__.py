"""What workers tell each other: additions to the prefix index, by a stream of a Redis or Valkey server."""
