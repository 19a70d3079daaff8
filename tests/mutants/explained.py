"""Changes of the guards that no unit test notices, and why that is right: by program and name."""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str], str] = {}
