"""What operators read and set by HTTP."""
