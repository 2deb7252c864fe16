"""The prefix index that workers share, by a stream of a Redis or Valkey server."""
