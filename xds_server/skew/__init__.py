"""When the shape of the load is the trouble: pure detectors over windows, and the diagnosis."""
