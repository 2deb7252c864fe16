"""Who of the engines speaks HTTP/2 well enough to be spoken to in it."""
