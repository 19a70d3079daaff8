"""Bumps across real releases of vLLM, as a user types them; writes docs/bump.md.

The releases' source distributions come from this machine's package index (see vllm_releases.py); each is one commit
with one tag in a local repository, which git reaches by the real address. The other sources are the stand-ins, and
vime is a tree of our own that imports the names that vime imports from vLLM.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit")]

from world import repository, settings  # noqa: E402

from benchmarks.vllm_releases import CONSUMERS, RECORD, fetch  # noqa: E402 (the path comes first)
from builder import manifest  # noqa: E402

IMAGE = "rocm7.14"
RELEASES = ("0.28.0", "0.29.0", "0.30.0")
CONSUMER = "".join(CONSUMERS[name] for name in ("launchers", "weight transfer", "the rest"))
COMMANDS = (
    f"preflight {IMAGE}",
    f"bump {IMAGE} vllm=v0.28.0",
    f"bump {IMAGE} vllm=v0.30.0 --summary summary.md",
    f"bump {IMAGE} --check-drift",
)


def main() -> None:
    written = manifest.load(ROOT / "images" / f"{IMAGE}.yaml")
    digests = {version: entry["sha256"] for version, entry in json.loads(RECORD.read_text("utf-8")).items()}
    trees = {version: fetch(version, digests[version], ROOT / ".cache" / "vllm-releases") for version in RELEASES}
    with tempfile.TemporaryDirectory() as scratch:
        world = Path(scratch)
        commits, places = {}, {}
        for name, source in written.sources.items():
            made = repository(world / "origins" / name)
            if name == "vllm":
                for version, tree in trees.items():
                    made.git("rm", "-r", "--quiet", "--force", "--ignore-unmatch", ".")
                    shutil.copytree(tree, made.folder, dirs_exist_ok=True)
                    commits[f"v{version}"] = made.commit({}, tag=f"v{version}")
                commits[name] = commits[str(source.tag)]
            else:
                shutil.copytree(ROOT / "standins/sources" / Path(source.checkout).name, made.folder, dirs_exist_ok=True)
                if name == "vime":
                    for path in (made.folder / "vime").rglob("*.py"):
                        # Line by line: our patch of vime has to find its place.
                        text = path.read_text("utf-8")
                        path.write_text(
                            re.sub(r"^(\s*)(?:from|import) vllm\b.*$", r"\1pass", text, flags=re.MULTILINE), "utf-8"
                        )
                commits[name] = made.commit({"vime/names.py": CONSUMER} if name == "vime" else {})
            places[source.repository] = f"file://{made.folder}"
        project = world / "project"
        for folder in ("builder", "dockerfiles", "images", "templates"):
            shutil.copytree(ROOT / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__"))
        pinned = manifest.load(project / "images" / f"{IMAGE}.yaml")
        pins: dict[tuple[str | int, ...], str] = {
            ("sources", name, "commit"): commits[name] for name in written.sources
        }
        for path, content in pinned.rewritten(pins).items():
            path.write_bytes(content)
        for other in {path.stem for path in project.glob("images/*.yaml")} - {IMAGE}:  # they pin what is not here
            (project / "images" / f"{other}.yaml").unlink()
            (project / "dockerfiles" / f"Dockerfile.{other}").unlink()
        environment = os.environ | {"GIT_CONFIG_GLOBAL": str(settings(places, world / "gitconfig"))}
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "PYTHONPATH": str(project)}
        run(project, environment, f"render {IMAGE}")
        first, *rest = (transcript(project, environment, command) for command in COMMANDS)
        again = transcript(project, environment, COMMANDS[0]).rpartition("\n\n")[2]
        parts = [f"{first}On cached sources, after all that follows: {again}", *rest]
        summary = (project / "summary.md").read_text("utf-8")
    (ROOT / "docs" / "bump.md").write_text(page(parts, summary), "utf-8")


def run(project: Path, environment: dict[str, str], command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "builder", *command.split()]
    return subprocess.run(
        words, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def transcript(project: Path, environment: dict[str, str], command: str) -> str:
    started = time.monotonic()
    done = run(project, environment, command)
    seconds = time.monotonic() - started
    told = f"{done.stdout.rstrip()}\n".lstrip()
    return f"```\n$ python -m builder {command}\n{told}$ echo $?\n{done.returncode}\n```\n\n{seconds:.1f} s.\n"


def page(parts: list[str], summary: str) -> str:
    titles = ("The pins as they are", "A bump across an API move", "A bump inside the window", "Drift")
    body = "\n".join(f"## {title}\n\n{part}" for title, part in zip(titles, parts, strict=True))
    quoted = "\n".join(f"> {line}".rstrip() for line in summary.splitlines())
    return (
        "# Bumps across real releases of vLLM\n\n"
        f"Written by `benchmarks/bump_releases.py` on {dt.datetime.now(dt.timezone.utc).date()}. vLLM "
        f"{', '.join(RELEASES)} are the source distributions of the package index, one commit and tag each in a local "
        "repository, reached by the real address through git's `insteadOf`: their commits are not upstream's. "
        "vime is a tree of our own that imports the names that vime imports from vLLM; the other sources are the "
        "stand-ins. It was not run against the real repositories.\n\n"
        f"{body}\nThe summary of the bump that was written:\n\n{quoted}\n"
    )


if __name__ == "__main__":
    main()
