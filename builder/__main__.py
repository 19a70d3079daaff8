"""`python -m builder`."""

import gc

# A command lives for seconds: collecting garbage among its imports costs a tenth of its start and frees nothing.
gc.set_threshold(100_000)

from builder.cli import run  # noqa: E402 (the line above is about this one)

run()
