"""What a bump costs: the steps that each change of an image runs again, beside those that depend on it.

    python -m benchmarks.bumps

A copy of the project is changed, rendered, and built on the rehearsal's base by a real engine that has built the
unchanged one; BuildKit's own flags say which steps were cached. The same is done with a Dockerfile of the usual shape.
Each key of a manifest has a row, or a reason in benchmarks/reads.py why none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

from copies import copied  # noqa: E402 (the path comes first)

from benchmarks.all_changes import one_of_each  # noqa: E402
from benchmarks.changes import IMAGE, SECOND, Change  # noqa: E402
from benchmarks.grounds import Ground, ground, later_tools  # noqa: E402
from benchmarks.reads import COMPILE, MAY_COMPILE, TRADES, dependents, may_compile, named  # noqa: E402
from benchmarks.telling import Target, tell  # noqa: E402
from benchmarks.timing import as_users_have_it  # noqa: E402
from builder import buildkit, dockerfile, manifest  # noqa: E402
from builder.engine import Engine  # noqa: E402
from builder.errors import BuilderError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUILDS_AT_ONCE = 3  # no time is measured
Ran = tuple[list[str], list[str]]  # the steps that ran with our Dockerfile, and with the usual one


def usual(text: str) -> str:
    """The same Dockerfile in the usual shape: the same steps on the same base, arguments and variables at the top."""
    lines, top, base = text.split("\n"), at_the_top(text), base_line(text)
    rest = [line for number, line in enumerate(lines, 1) if number > base and number not in top]
    return "\n".join([*lines[:base], *top.values(), *rest])


def at_the_top(text: str) -> dict[int, str]:
    """The lines that stand elsewhere in the usual shape, by their numbers: arguments and variables."""
    steps = [step.line for step in dockerfile.parse(text) if step.keyword in {"ARG", "ENV"}]
    return {number: text.split("\n")[number - 1] for number in steps if number > base_line(text)}


def base_line(text: str) -> int:
    (line,) = (step.line for step in dockerfile.parse(text) if step.keyword == "FROM")
    return line


def rendered(change: Change | None, copy: Path, image: str) -> str:
    """The Dockerfile of a project with that change, by the project's own command; `copy` is the unchanged one."""
    with tempfile.TemporaryDirectory() as scratch:
        changed = Path(scratch) / "project"
        shutil.copytree(copy, changed)
        if change:
            change.apply(changed)
        command = [sys.executable, "-m", "builder", "render", image]
        own = as_users_have_it(os.environ | {"PYTHONPATH": str(changed)})
        done = subprocess.run(command, cwd=changed, env=own, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{change and change.what}: {done.stderr}")
        return (changed / f"dockerfiles/Dockerfile.{image}").read_text("utf-8")


def ran(engine: Engine, text: str, arguments: Mapping[str, str], what: str, image: str = IMAGE) -> list[str]:
    """The steps that run something and were not cached, by their names in the table."""
    try:
        built = buildkit.build(engine, text, arguments=arguments, watch=lambda _: None, network="none")
    except BuilderError as error:
        raise SystemExit(f"{what}: {error}") from error
    names = named(text, image)
    return [names[step.name] for step in built.steps if step.name in names and not step.cached]


def main() -> None:
    written = {image: manifest.load(ROOT / "images" / f"{image}.yaml") for image in (IMAGE, SECOND)}
    engine = Engine("benchmark")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        copy = copied(Path(scratch)).root
        tools = later_tools(copy)
        grounds = {image: ground(engine, written[image], tools, stack) for image in written}
        first, second = grounds.values()
        pins: dict[tuple[str | int, ...], str]
        for image, found in grounds.items():
            pins = {("sources", name, "commit"): commit for name, commit in found.commits.items()}
            for path, content in written[image].rewritten(pins).items():
                (copy / path.relative_to(ROOT)).write_bytes(content)
        others = {image: found.other for image, found in grounds.items()}
        changes = one_of_each(
            {**first.commits, **second.commits}, {**first.later, **second.later}, others, second.wheel
        )
        measured = [
            each
            for image, found in grounds.items()
            for each in measure([change for change in changes if change.image == image], copy, image, found)
        ]
    report(changes, measured)


def measure(changes: Sequence[Change], copy: Path, image: str, on: Ground) -> list[Ran | str]:
    """The steps that each change of an image has run, with our Dockerfile and with the usual one; or why none."""
    shapes = {"ours": rendered(None, copy, image)}
    shapes["usual"] = usual(shapes["ours"])
    engine = Engine("benchmark")
    fixed = {"BASE_IMAGE": on.base, **on.arguments}
    for shape, text in shapes.items():
        count = len(ran(engine, text, fixed, shape, image))
        sys.stderr.write(f"{image}, {shape}: {count} steps before any change\n")

    def both(change: Change) -> Ran | str:
        one = Engine("benchmark")  # a connection is one thread's
        arguments = {**fixed, **dict(change.arguments)}
        try:
            text = rendered(change, copy, image)
            ours = ran(one, text, arguments, change.what, image)
            moved = change.arguments or [*at_the_top(text).values()] != [*at_the_top(shapes["ours"]).values()]
            theirs = ran(one, usual(text), arguments, change.what, image) if moved else ours
        except SystemExit as error:  # it hides no other
            sys.stderr.write(f"{image}, {error}\n")
            return str(error)
        sys.stderr.write(f"{image}, {change.what}: {len(ours)} steps, in the usual shape {len(theirs)}\n")
        return ours, theirs

    with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:
        return list(pool.map(both, changes))


def report(changes: Sequence[Change], measured: Sequence[Ran | str]) -> None:
    rows: list[list[object]] = []
    found = Counter[str]()
    for change, each in zip(changes, measured, strict=True):
        if isinstance(each, str):
            found["failed"] += 1
            none = [None] * 5
            rows.append([change.image, change.what, len(dependents(change.part, change.image)), *none, "", _why(each)])
        else:
            rows.append(row(change, each, found))
    tell(
        title="The cost of a bump",
        how=" ".join(__doc__.partition("\n\n    python -m benchmarks.bumps\n\n")[2].split()),
        columns=COLUMNS,
        rows=rows,
        targets=[Target(what=what, value=found[kind], allowed=0, unit=unit) for kind, what, unit in TARGETS],
        notes=NOTES,
    )


def row(change: Change, measured: Ran, found: Counter[str]) -> list[object]:
    """What a change has come to; what is wrong with that is counted in `found`."""
    wanted, compiling = dependents(change.part, change.image), COMPILE[change.image]
    ours, theirs = measured
    more = [step for step in ours if step not in wanted]
    found["missing"] += len(set(wanted) - set(ours))
    found["untraded"] += len(set(more) - set(TRADES))
    found["compiled"] += compiling in ours and not may_compile(change.part, change.image)
    compiles = [("yes" if compiling in steps else "no") for steps in (wanted, ours, theirs)]
    counts = [len(steps) for steps in (wanted, ours, theirs)]
    why = dict.fromkeys(TRADES.get(step, "no reason") for step in more)
    return [change.image, change.what, *counts, *compiles, ", ".join(more), "; ".join(why)]


def _why(error: str) -> str:
    return f"could not be measured: {' '.join(error.split())[:200]}"


TARGETS = (
    ("missing", "steps that depend on a change and did not run", "steps"),
    ("untraded", "steps that ran without need, and for no trade", "steps"),
    ("compiled", "long compiles for a change that may not", "steps"),
    ("failed", "changes whose image could not be built", "changes"),
)
COLUMNS = (
    "image",
    "what changes",
    "steps that depend on it",
    "steps that ran",
    "steps that ran in the usual shape",
    "the long compile depends on it",
    "it ran",
    "it ran in the usual shape",
    "ran without need",
    "why",
)
NOTES = (
    "What depends on a change is said by a table in benchmarks/reads.py, written from what each step is for.",
    "Only steps that run something count: one that puts a file in place takes a tenth of a second.",
    f"The long compile is vLLM's; of {SECOND}, whose base ships vLLM, TransformerEngine's.",
    f"What may run it, beside its own source: {', '.join(sorted(MAY_COMPILE))}.",
    "source.py fetches the source in the step that compiles it, so that its tree is in no layer.",
    f"Of {SECOND} the rows are those whose form {IMAGE} does not have, or has in another way.",
    "The usual shape has the same steps on the same base, with all arguments and variables at the top.",
    "Where no argument or variable changes, the usual shape runs the same steps, and was not built again.",
)


if __name__ == "__main__":
    main()
