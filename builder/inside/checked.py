"""What the checks look at, and the processes in which they try what may crash or hang."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import threading
from importlib import metadata
from pathlib import Path
from typing import Any

TIME_LIMIT_S = 120
Name = tuple[str, "str | None"]  # a module, and what is taken from it
# How libraries say that there is no device; an import that fails for that was not tried.
NO_DEVICE = re.compile(r"no (hip|rocm|cuda)[- ](gpus?|capable|devices?)|hipErrorNoDevice|/dev/kfd"
                       r"|from rocminfo failed|no gfx arch found in rocminfo", re.IGNORECASE)


class Failed(Exception):  # noqa: N818 - an outcome, not an error
    """The check ran, and the image is not as promised."""


class CouldNotRun(Exception):  # noqa: N818 - an outcome, not an error
    """The check could not be tried here, and why."""


class Trials:
    """A process that forks for every request. It has loaded some modules, once; those that cannot be, it refuses."""

    def __init__(self, python: str, modules: list[str]) -> None:
        self.command, self.loaded = [python, str(Path(__file__).with_name("trial.py"))], modules
        self.refused = set[str]()
        self.start()

    def start(self) -> None:
        """Load what can be loaded; after one that cannot, the next process goes on without it."""
        while True:
            environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
            self.process = subprocess.Popen([*self.command, *self.loaded], cwd="/", env=environment, text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                            start_new_session=True)
            self.known: dict[str, dict[str, Any]] = {}
            for module in self.loaded:
                said = self.line(TIME_LIMIT_S)
                if not said or said["problem"]:
                    break
                self.known[module] = said
            else:
                return
            self.end()
            self.refused.add(self.loaded.pop(len(self.known)))

    def line(self, limit_s: float) -> dict[str, Any] | None:
        """What the process says next, if it does in time."""
        watch = threading.Timer(limit_s, self.end)
        watch.start()
        try:
            return dict(json.loads(self.process.stdout.readline() if self.process.stdout else ""))
        except (ValueError, TypeError):
            return None
        finally:
            watch.cancel()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def ask(self, names: list[Name]) -> dict[str, Any]:
        """What became of some names, tried in one process; one that crashes or hangs takes the rest along."""
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"names": names, "limit_s": TIME_LIMIT_S}), file=self.process.stdin, flush=True)
        said = self.line(TIME_LIMIT_S + 5)
        if said is None:
            self.end()
            self.start()
            said = {"found": [], "why": "it ended the process that watched it"}
        return said

    def take(self, names: list[Name]) -> list[dict[str, Any]]:
        """What became of each name; a crash costs one name."""
        found: list[dict[str, Any]] = []
        while len(found) < len(names):
            said = self.ask(names[len(found):])
            found += [each for each in said["found"] if "mapped" not in each]
            found += [{"error": said["why"], "tried": True}] if len(found) < len(names) else []
        return found


class World:
    """What the checks look at: the image's own files, and the list's interpreter."""

    def __init__(self, root: Path, python: str, listing: Path, modules: list[str]) -> None:
        self.root, self.python, self.listing, self.modules = root, python, listing, modules
        self.notes: list[str] = []  # of the check that runs: what passed, and still wants to be seen
        self.idle: dict[str, set[str]] = {}  # of each consumer, the waivers that no window needed so far

    def read(self, name: str) -> Any:
        return json.loads((self.root / name).read_text("utf-8"))

    def run(self, *command: str, folder: str = "/") -> tuple[int, bytes, str]:
        """Run a program that can hang or crash without taking the others along: exit code, output, errors."""
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "GIT_OPTIONAL_LOCKS": "0"}
        with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, start_new_session=True) as child:
            try:
                output, errors = child.communicate(timeout=TIME_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)  # with all that it has started
                raise Failed(f"did not end within {TIME_LIMIT_S} s") from None
        return child.returncode, output, errors.decode(errors="replace").strip()

    @functools.cached_property
    def environment(self) -> dict[str, str]:
        """What Python sees when it starts; modules may set more."""
        _, output, errors = self.run(self.python, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
        return dict(json.loads(output.splitlines()[-1] if output else errors))

    @functools.cached_property
    def bare(self) -> Trials:
        """Nothing is loaded: every request begins as a new interpreter does."""
        return Trials(self.python, [])

    @functools.cached_property
    def warm(self) -> Trials:
        """The modules of the list are loaded, once."""
        return Trials(self.python, self.modules)

    def take(self, names: list[Name]) -> list[dict[str, Any]]:
        """What became of importing each module and taking the name from it."""
        found = {name: self.warm.known[name[0]] for name in names if name[0] in self.warm.known and not name[1]}
        quick = [name for name in names if name not in found and name[0] not in self.warm.refused]
        found |= zip(quick, self.warm.take(quick), strict=True)
        # A fork may fail for the fork's sake: what counts is a process without a past.
        again = [name for name in names if "error" in found.get(name, {"error": ""})]
        found |= zip(again, self.bare.take(again), strict=True)
        return [found[name] for name in names]

    def import_one(self, module: str, name: str | None = None) -> dict[str, Any]:
        (found,) = self.take([(module, name)])
        if "error" in found:
            raise (CouldNotRun if no_device(found) else Failed)(found["error"])
        return found

    def close(self) -> None:
        for trials in [vars(self)[name] for name in ("bare", "warm") if name in vars(self)]:
            trials.end()


def no_device(found: dict[str, Any]) -> bool:
    return not found["tried"] and bool(NO_DEVICE.search(found["error"]))


def is_broken(found: dict[str, Any]) -> bool:  # a library that was loaded, and is no module, is not
    return "error" in found and "does not define module export function" not in found["error"]


def modules_of(dist: metadata.Distribution) -> set[str]:
    """The top-level packages and modules of a distribution, compiled ones too."""
    parts = (path.parts for path in dist.files or [] if path.suffix in (".py", ".so"))
    names = (first.partition(".")[0] for first, *rest in parts if rest in ([], ["__init__.py"]))
    return set(filter(str.isidentifier, names))


def compiled_of(dist: metadata.Distribution) -> list[str]:
    """The compiled modules of a distribution, by their names."""
    names = [".".join(path.parts).partition(".so")[0] for path in dist.files or [] if path.suffix == ".so"]
    names = [re.sub(r"\.(abi3|cpython-[\w-]+)$", "", name) for name in names]
    return sorted(name for name in names if all(part.isidentifier() for part in name.split(".")))
