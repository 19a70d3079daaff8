"""Programs that run inside the image with the base's own Python: standard library only."""
