"""Times and sizes as people read them: the same words in every place that tells one."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """`12.3 s` below a minute, else `3:05 min` or `1:02:03 h`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02} h"
    return f"{minutes}:{rest:02} min" if minutes else f"{seconds:.1f} s"


def size(count: int) -> str:
    """Bytes as `1.2 GB`, `3.4 MB`, `5.6 kB` or `7 B`."""
    for unit, bytes_ in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= bytes_:
            return f"{count / bytes_:.1f} {unit}"
    return f"{count} B"
