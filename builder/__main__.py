"""`python -m builder`."""

import gc
import os

# A command lives for seconds: collecting garbage among its imports costs a tenth of its start and frees nothing.
gc.set_threshold(10_000)
# A plugin would have a say in what a manifest is; looking for one reads the metadata of everything installed.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from builder.cli import run  # noqa: E402 (the line above is about this one)

run()
