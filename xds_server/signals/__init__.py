"""One file a source of signals; each yields a Load."""
