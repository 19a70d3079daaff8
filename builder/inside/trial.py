"""Try imports, each request in a process of its own, forked from one that has loaded the heavy modules once."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import types
from typing import IO, Any


def take(module: str, name: str | None) -> dict[str, Any]:
    """What becomes of importing a module and taking a name from it, as a consumer does."""
    try:
        found: Any = importlib.import_module(module)
        for part in name.split(".") if name else ():
            if not isinstance(found, types.ModuleType):
                break  # what an object has, only its class knows
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(f"{found.__name__}.{part}")
        file = getattr(found, "__file__", None)
        return {"text": str(found), "places": [file] if file else [*map(str, getattr(found, "__path__", ()))]}
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what the import came to
        return {"error": f"{type(error).__name__}: {error}", "tried": isinstance(error, ImportError)}


def mapped() -> list[str]:
    """The files that this process has mapped, by their real paths."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123 - Python at its barest
        return sorted({line.rstrip("\n").split(maxsplit=5)[5] for line in maps if "/" in line})


def attempt(names: list[tuple[str, str | None]], say: IO[str]) -> None:
    for module, name in names:
        print(json.dumps(take(module, name)), file=say, flush=True)
    print(json.dumps({"mapped": mapped()}), file=say, flush=True)


def answer(names: list[tuple[str, str | None]], limit_s: float) -> dict[str, Any]:
    """Fork, try, and tell what came of it; what a child leaves running ends with it."""
    said, printed = os.memfd_create("said"), os.memfd_create("printed")
    child, late = os.fork(), threading.Event()
    if not child:
        os.setpgid(0, 0)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        try:
            with os.fdopen(said, "w") as say:
                attempt(names, say)
        finally:
            os._exit(0)  # what modules do at the end of a process is no part of their import

    def end(*_: object) -> None:
        late.set()
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.setitimer(signal.ITIMER_REAL, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    texts = []
    for handle in (said, printed):
        with os.fdopen(handle, "rb") as file:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    message = ([line for line in texts[1].splitlines() if line.strip()] or ["no message"])[-1]
    return {"found": [json.loads(line) for line in texts[0].splitlines() if line.endswith("}")],
            "why": f"did not end within {limit_s:g} s" if late.is_set() else f"exit code {code}, {message}"}


def main() -> None:
    asked, say = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what modules read and print stays apart from what is asked and said
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - none of its names is a module here
    sys.path[:] = [place for place in sys.path if place not in ("", here)]
    for module in sys.argv[1:]:
        found = take(module, None)
        threads = threading.active_count() - 1
        problem = found.get("error") or (threads and f"it leaves {threads} threads running")
        print(json.dumps({"problem": problem or None, **found}), file=say, flush=True)
        if problem:
            sys.exit(1)  # a second try of a failed import, or a fork beside threads, would prove nothing
    for line in asked:
        request = json.loads(line)
        print(json.dumps(answer(request["names"], request["limit_s"])), file=say, flush=True)


if __name__ == "__main__":
    main()
