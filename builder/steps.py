"""Single steps of a generated Dockerfile: the file before one, its script, the file with one run anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder import dockerfile
from builder.errors import Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.dockerfile import Instruction

ANEW = "# run anew:"


def names(text: str) -> tuple[str, ...]:
    """The steps that have a script, in their order."""
    return tuple(step.name for step in _scripts(text))


def assert_there(text: str, step: str) -> None:
    """Refuse a name that is no step's; of a command, before any engine is asked.

    Raises:
        UsageError: with the near one.
    """
    _step(text, step)


def script(text: str, step: str) -> str:
    """The script of a step, as its shell gets it.

    Raises:
        UsageError: where there is no such step.
    """
    return "\n".join([*_step(text, step).heredocs[0].body, ""])


def before(text: str, step: str) -> str:
    """The file as far as the step, with the arguments that stand before it.

    Raises:
        UsageError: where there is no such step.
    """
    return "\n".join([*text.split("\n")[: _step(text, step).line - 1], ""])


def run_anew(text: str, marks: Mapping[str, str]) -> str:
    """The file with another cache key for each step in `marks`, and so for all that follow it.

    The engine's own way, `nocache`, runs every step and empties the cache mounts. A comment in the script does
    neither; the step's layer is what the script makes, so the comment leaves no trace in a file of the image.

    Args:
        marks: by step, a text that is another one each time. Of steps that are gone, they mean nothing.
    """
    lines = text.split("\n")
    for step in reversed(_scripts(text)):
        if step.name in marks:
            lines.insert(step.heredocs[0].line - 1, f"{ANEW} {marks[step.name]}")
    return "\n".join(lines)


def _scripts(text: str) -> list[Instruction]:
    return [step for step in dockerfile.parse(text) if step.keyword == "RUN" and step.heredocs]


def _step(text: str, name: str) -> Instruction:
    steps = {step.name: step for step in _scripts(text)}
    if name not in steps:
        from builder import schema  # noqa: PLC0415 (dear, and most names are right)

        raise UsageError(Problem(f"no step {name!r} in this image", hint=schema.near_or_known(name, steps)))
    return steps[name]
