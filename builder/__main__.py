"""`python -m builder`."""

from builder.cli import run

run()
