"""A stand-in for torch's own tools."""
