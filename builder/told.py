"""What is told beside data and errors; what strangers' texts may not do there: steer a terminal, or hold a password."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = logging.getLogger("vime-images")
LOG.setLevel(logging.INFO)

# Manifests, logs, git and registries bring texts of strangers to the user's terminal.
_STEERING = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Tell, where more is wanted, what another program was asked for and the seconds that it took."""
    began = time.monotonic()
    try:
        yield
    finally:
        LOG.debug("%s (%.2f s)", what, time.monotonic() - began)


def plain(text: str) -> str:
    """`text` without what steers a terminal, has a character shown elsewhere than it stands, or is a password."""
    return without_logins(_STEERING.sub("", text))


def without_logins(text: str) -> str:
    """`text` with no name and no password in the addresses that it holds."""
    return re.sub(r"://[^/\s@]*(?:@[^/\s@]*)*@", "://", text)
