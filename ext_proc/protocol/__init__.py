"""The ext_proc protocol: messages, modes, replies, the endpoint picker protocol."""
