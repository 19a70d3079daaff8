"""`matrix --changed-since` over a hundred images in a git repository of their own: planning alone, a whole process."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.telling import Target, tell
from benchmarks.timing import ROOT, in_turn, run

sys.path.insert(0, str(ROOT / "tests" / "unit"))

from copies import copied

IMAGE, IMAGES, CHANGED, ROUNDS, ALLOWED_S = "rocm7.14", 100, 7, 5, 2
CHANGE = "\nenv:\n  ANOTHER:\n    value: changed\n    reason: so that it has\n"
WORDS = ("-m", "builder", "matrix", "--format", "github")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        project = copied(Path(scratch)).root
        text = (project / "images" / f"{IMAGE}.yaml").read_text("utf-8")
        for path in project.glob("images/*.yaml"):
            path.unlink()
        paths = [project / "images" / f"m{number}.yaml" for number in range(IMAGES)]
        for path in paths:
            path.write_text(text, "utf-8")
        environment = os.environ | {"PYTHONPATH": str(project), "GIT_CONFIG_GLOBAL": os.devnull}
        names = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@example.invalid")
        run([sys.executable, "-m", "builder", "render"], cwd=project, environment=environment)
        for words in (
            ["init", "--quiet"],
            ["add", "."],
            [*names, "commit", "--quiet", "--message", "a hundred images"],
        ):
            run(["git", *words], cwd=project, environment=environment)
        for path in paths[:CHANGED]:
            path.write_text(text.replace("\nenv:\n", CHANGE, 1), "utf-8")

        def planned(*more: str) -> str:
            return run([sys.executable, *WORDS, *more], cwd=project, environment=environment)

        changed = planned("--changed-since", "HEAD").count('"gpu_target"')
        spent = in_turn({"all": planned, "changed": lambda: planned("--changed-since", "HEAD")}, ROUNDS)
    rows = [
        [what, round(statistics.median(spent[name]), 2), round(min(spent[name]), 2)]
        for name, what in {"all": "`matrix`", "changed": "`matrix --changed-since HEAD`"}.items()
    ]
    tell(
        title="The matrix of a hundred images",
        how=f"{IMAGES} manifests like {IMAGE}'s, {CHANGED} of them changed since the commit; whole processes, "
        f"median of {ROUNDS}.",
        columns=["what", "median (s)", "fastest (s)"],
        rows=rows,
        targets=[Target(what="planning what has changed", value=rows[1][1], allowed=ALLOWED_S, unit="s")],  # type: ignore[arg-type]
        notes=[f"It found {changed} images and targets that had changed."],
    )


if __name__ == "__main__":
    main()
