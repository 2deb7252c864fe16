"""The fleet's stream to ext_proc workers."""
