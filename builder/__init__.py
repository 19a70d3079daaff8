"""Dockerfiles for ROCm training images: generated, rehearsed, built, verified."""
