"""What this checkout would make today, held against what an image was made of."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from builder import dockerfile, lists, render, steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from builder.dockerfile import Instruction
    from builder.facts import Facts
    from builder.made import Made
    from builder.manifest import Manifest

# As the engine's history has a step; in front of the shell stand the arguments that it was given.
_RUN = re.compile(r"RUN (?:\|\d+ .*? )?(?:/bin/bash -euo pipefail|/bin/sh) -c ", re.DOTALL)
_END = " # buildkit"
_OPTION = re.compile(r"--\S+ ")
_MANIFEST = f"{lists.HOME}/manifest.json"


def of(made: Made, manifest: Manifest, facts: Facts) -> Iterator[str]:
    """Each difference, the image's side first; none, where the checkout renders to what made the image.

    Arguments of the build are no part of that: an image says itself that its pins are others than its manifest's.

    Raises:
        RenderError: where the manifest does not render.
    """
    rendered = dockerfile.parse(render.render(manifest, facts))
    carried, own = made.manifest, json.loads(lists.text(lists.content(manifest)))
    if carried is None:
        yield "manifest: the image carries none"
    else:
        if render.digest(made.files[_MANIFEST].decode()) != made.label("manifest"):
            yield "manifest: what the image carries has another digest than its label says"
        yield from _keys(flat(carried), flat(own))
    yield from _files(made, rendered)
    yield from _scripts(made.history, rendered)
    label = f"{render.LABEL}.templates"
    written = next(part for step in rendered if step.keyword == "LABEL" for part in step.text.split() if label in part)
    if (today := written.partition("=")[2]) != made.labels.get(label):
        yield f"templates: {made.label('templates')[:19]} -> {today[:19]}"


def flat(value: Any, key: str = "") -> dict[str, str]:  # noqa: ANN401 (JSON holds anything)
    """The scalars of a JSON value, each by its dotted key."""
    if isinstance(value, dict):
        return {name: text for part, inner in value.items() for name, text in flat(inner, f"{key}{part}.").items()}
    return {key.removesuffix("."): value if isinstance(value, str) else json.dumps(value)}


def _keys(image: Mapping[str, str], checkout: Mapping[str, str]) -> Iterator[str]:
    for key in sorted({*image, *checkout}):
        before, after = image.get(key, "nothing"), checkout.get(key, "nothing")
        if before != after:
            yield f"manifest: {key}: {before} -> {after}"


def _files(made: Made, rendered: Sequence[Instruction]) -> Iterator[str]:
    for step in rendered:
        path = step.text.split()[-1]
        if step.keyword != "COPY" or path == _MANIFEST or not path.startswith(lists.HOME):
            continue
        if path not in made.files:
            yield f"file {path}: the image has none"
        elif made.files[path] != "\n".join([*step.heredocs[0].body, ""]).encode():
            yield f"file {path}: another content"


def _scripts(history: Sequence[str], rendered: Sequence[Instruction]) -> Iterator[str]:
    """Steps by their scripts. The base's own stand first in a history, so ours begin with the first that is known."""
    wanted = _names(rendered)
    ran = [plain(script) for entry in history if (script := script_of(entry)) is not None]
    begin = next((at for at, script in enumerate(ran) if script in wanted), len(ran))
    ours = ran[begin:]
    for script, name in wanted.items():
        if script not in ours:
            yield f"step {name}: the image has no such script"
    for script in ours:
        if script not in wanted:
            first = script.partition("\n")[0]
            yield f"step that is rendered no more: {first[:100]}"


def names(text: str) -> dict[str, str]:
    """The steps' names by their scripts, of a Dockerfile."""
    return _names(dockerfile.parse(text))


def _names(rendered: Sequence[Instruction]) -> dict[str, str]:
    return {_script(step): step.name for step in rendered if step.keyword == "RUN"}


def script_of(instruction: str) -> str | None:
    """The script of a step, as the engine's history has it; None of what is no step of ours."""
    found = _RUN.match(instruction) if instruction.endswith(_END) else None
    return instruction[found.end() :].removesuffix(_END) if found else None


def _script(step: Instruction) -> str:
    return plain("\n".join(step.heredocs[0].body) if step.heredocs else _OPTION.sub("", step.text))


def plain(script: str) -> str:
    """A script without the marks of steps that were asked to run anew."""
    return "\n".join(line for line in script.strip().splitlines() if not line.startswith(steps.ANEW))
