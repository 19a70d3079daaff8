"""Bumps across real releases of vLLM, as a user types them; writes docs/bump.md.

The releases' source distributions come from this machine's package index (see vllm_releases.py); each is one commit
with one tag in a local repository, which git reaches by the real address. The other sources are the stand-ins, and
vime is a tree of our own that imports the names that vime imports from vLLM.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

from copies import copied  # noqa: E402 (the path comes first)
from world import Repository, repository, settings  # noqa: E402

from benchmarks.telling import Target, tell  # noqa: E402
from benchmarks.timing import as_users_have_it  # noqa: E402
from benchmarks.vllm_releases import CONSUMERS, PINNED, UnreachableError, fetched  # noqa: E402
from builder import manifest  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from builder.entries import Source

IMAGE, ROUNDS, ALLOWED_S = "rocm7.14", 3, 10
RELEASES = ("0.28.0", "0.29.0", "0.30.0")
CONSUMER = "".join(CONSUMERS[name] for name in PINNED)
PREFLIGHT = f"preflight {IMAGE}"
COMMANDS = (
    PREFLIGHT,
    f"bump {IMAGE} vllm=v0.28.0",
    f"bump {IMAGE} vllm=v0.30.0 --summary summary.md",
    f"bump {IMAGE} --check-drift",
)
TITLES = ("The pins as they are", "A bump across an API move", "A bump inside the window", "Drift")


@dataclass(frozen=True)
class Transcript:
    """A command, what it said, and what it took."""

    command: str
    said: str
    code: int
    seconds: float

    def __str__(self) -> str:
        told = f"{self.said.rstrip()}\n".lstrip()
        return f"```\n$ python -m builder {self.command}\n{told}$ echo $?\n{self.code}\n```\n\n{self.seconds:.1f} s.\n"


def main() -> None:
    try:
        trees = fetched()
    except UnreachableError as reason:
        report([], None, [f"{reason}. docs/bump.md is as it was."])
        return
    with tempfile.TemporaryDirectory() as scratch:
        project, environment = prepared(Path(scratch), {version: trees[version] for version in RELEASES})
        typed(project, environment, f"render {IMAGE}")
        transcripts = [typed(project, environment, command) for command in COMMANDS]
        again = median(typed(project, environment, PREFLIGHT).seconds for _ in range(ROUNDS))
        summary = (project / "summary.md").read_text("utf-8")
    (ROOT / "docs" / "bump.md").write_text(page(transcripts, again, summary), "utf-8")
    report(transcripts, again, [])


def prepared(world: Path, trees: Mapping[str, Path]) -> tuple[Path, dict[str, str]]:
    """A copy of the project that pins local repositories, and the environment that leads to them."""
    written = manifest.load(ROOT / "images" / f"{IMAGE}.yaml")
    commits, places = {}, {}
    for name, source in written.sources.items():
        made = repository(world / "origins" / name)
        commits[name] = _releases(made, source, trees) if name == "vllm" else _standin(made, source)
        places[source.repository] = f"file://{made.folder}"
    project = copied(world).root
    pins: dict[tuple[str | int, ...], str] = {("sources", name, "commit"): commits[name] for name in written.sources}
    for path, content in manifest.load(project / "images" / f"{IMAGE}.yaml").rewritten(pins).items():
        path.write_bytes(content)
    for other in {path.stem for path in project.glob("images/*.yaml")} - {IMAGE}:  # they pin what is not here
        (project / "images" / f"{other}.yaml").unlink()
        (project / "dockerfiles" / f"Dockerfile.{other}").unlink()
    environment = os.environ | {"GIT_CONFIG_GLOBAL": str(settings(places, world / "gitconfig"))}
    return project, environment | {"GIT_CONFIG_NOSYSTEM": "1", "PYTHONPATH": str(project)}


def _releases(made: Repository, source: Source, trees: Mapping[str, Path]) -> str:
    """A commit and a tag for each release; the commit of the pinned one."""
    commits = {}
    for version, tree in trees.items():
        made.git("rm", "-r", "--quiet", "--force", "--ignore-unmatch", ".")
        shutil.copytree(tree, made.folder, dirs_exist_ok=True)
        commits[f"v{version}"] = made.commit({}, tag=f"v{version}")
    return commits[str(source.tag)]


def _standin(made: Repository, source: Source) -> str:
    """A commit of a stand-in; of vime's, with the names that vime imports from vLLM in place of its own."""
    shutil.copytree(ROOT / "standins/sources" / Path(source.checkout).name, made.folder, dirs_exist_ok=True)
    if source.name != "vime":
        return made.commit({})
    for path in (made.folder / "vime").rglob("*.py"):
        # Line by line: our patch of vime has to find its place.
        text = re.sub(r"^(\s*)(?:from|import) vllm\b.*$", r"\1pass", path.read_text("utf-8"), flags=re.MULTILINE)
        path.write_text(text, "utf-8")
    return made.commit({"vime/names.py": CONSUMER})


def typed(project: Path, environment: Mapping[str, str], command: str) -> Transcript:
    words = [sys.executable, "-m", "builder", *command.split()]
    own, out = as_users_have_it(environment), subprocess.PIPE
    started = time.monotonic()
    done = subprocess.run(words, cwd=project, env=own, stdout=out, stderr=subprocess.STDOUT, text=True, check=False)
    return Transcript(command, done.stdout, done.returncode, time.monotonic() - started)


def page(transcripts: Sequence[Transcript], again: float, summary: str) -> str:
    first, *rest = map(str, transcripts)
    parts = [f"{first}On cached sources, after all that follows: {again:.1f} s.\n", *rest]
    body = "\n".join(f"## {title}\n\n{part}" for title, part in zip(TITLES, parts, strict=True))
    quoted = "\n".join(f"> {line}".rstrip() for line in summary.splitlines())
    return (
        "# Bumps across real releases of vLLM\n\n"
        f"Written by `make bench ARGS=bump_releases` on {dt.datetime.now(dt.timezone.utc).date()}. vLLM "
        f"{', '.join(RELEASES)} are the source distributions of the package index, one commit and tag each in a local "
        "repository, reached by the real address through git's `insteadOf`: their commits are not upstream's. "
        "vime is a tree of our own that imports the names that vime imports from vLLM; the other sources are the "
        "stand-ins. It was not run against the real repositories.\n\n"
        f"{body}\nThe summary of the bump that was written:\n\n{quoted}\n"
    )


def report(transcripts: Sequence[Transcript], again: float | None, notes: Sequence[str]) -> None:
    rows: list[list[object]] = [[f"`{each.command}`", each.code, round(each.seconds, 1)] for each in transcripts]
    if again is not None:
        rows.append([f"`{PREFLIGHT}`, on cached sources", transcripts[0].code, round(again, 1)])
    tell(
        title="Bumps across real releases of vLLM",
        how="As people type them, whole processes; docs/bump.md has what they said. vLLM is real, from its source "
        "distributions, and so is the index; the repositories are of this machine, the other sources stand-ins.",
        columns=["command", "exit code", "took (s)"],
        rows=rows,
        targets=[
            Target(
                what="preflight over a real vLLM, on cached sources",
                value=None if again is None else round(again, 1),
                allowed=ALLOWED_S,
                unit="s",
            )
        ],
        notes=notes,
    )


if __name__ == "__main__":
    main()
