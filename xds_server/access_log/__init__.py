"""What requests met: Envoys' access log."""
