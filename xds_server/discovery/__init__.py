"""xDS: subscriptions and protocol variants as I/O-free state machines, one thin loop."""
