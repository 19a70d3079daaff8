"""A manifest's Dockerfile: pure, the same bytes for the same manifest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import jinja2.bccache

from builder import checklist, entries, lists, rules
from builder.errors import Location, Problem, RenderError, StaleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.entries import Patch
    from builder.facts import Facts
    from builder.manifest import Manifest

TEMPLATES = Path(__file__).parent.parent / "templates"
COMPILED = Path(__file__).parent.parent / ".cache" / "templates"
PROGRAMS = Path(__file__).parent / "inside"
LABEL = "vime-image"


def render(manifest: Manifest, facts: Facts, templates: Path = TEMPLATES) -> str:
    """The Dockerfile of `manifest`.

    Raises:
        RenderError: where a template names what the manifest lacks, or the text breaks a rule.
        StaleError: where its lock is of another manifest.
    """
    if stale := manifest.stale_lock:
        raise StaleError(stale)
    try:
        template = _environment(templates).get_template("Dockerfile.j2")
        text = template.render(_names(manifest, facts), templates_digest=digest(_without_comments(templates)))
    except jinja2.TemplateError as error:
        raise RenderError(Problem(str(error), _place_in_template(error))) from error
    base = rules.Base({**dict.fromkeys(facts.env_unknown), **facts.env}, facts.tools)
    broken = rules.problems(text, Path(f"Dockerfile.{manifest.name}"), base)
    if broken:
        raise RenderError(*broken)
    return text


def _names(manifest: Manifest, facts: Facts) -> dict[str, object]:
    """Everything that a template may name, but for what is said of the templates themselves."""
    content = lists.text(lists.content(manifest))
    dropped = {name: facts.env[name] for name in manifest.dropped_env if name in facts.env}
    return {
        "image": manifest,
        "facts": facts,
        "python": facts.python.executable,
        "targets": manifest.gpu_targets,
        "tag": manifest.tag(manifest.gpu_targets[:1]),
        "wheels": manifest.installed_by("wheel"),
        "editables": manifest.installed_by("editable"),
        "wheel_argument": entries.wheel_argument,
        "install_step": entries.install_step,
        "set_path": lists.set_path,
        "requirement_set": lambda source: json.dumps(lists.requirement_set(source)) + "\n",
        "requirement_folder": lists.requirement_folder,
        "patch_path": lambda source, patch: lists.patch_path(manifest, source, patch),
        "patch_text": lambda patch: _patch_text(manifest, patch),
        "shm_manager": f"{facts.python.site_packages}/torch/bin/torch_shm_manager",
        "bin": str(Path(facts.python.executable).parent),
        "home": lists.HOME,
        "caches": lists.CACHES,
        "cache_mount": lists.cache_mount,
        "label": LABEL,
        "overridden": _overridden(manifest),
        "policy": lists.text(lists.policy(manifest)),
        "checks": lists.text(checklist.wanted(manifest, facts)),
        "dropped": _dropping(dropped) if dropped else "",
        "manifest_json": content,
        "manifest_digest": digest(content),
        "program": lambda name: (PROGRAMS / name).read_text(encoding="utf-8"),
    }


def digest(text: str) -> str:
    """As a label names it."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@cache
def _without_comments(templates: Path) -> str:
    """A set of templates as one text; comments, for their readers or the generated file's, are no part of it."""
    paths = sorted(templates.rglob("*.j2"))
    whole = "".join(f"{path.relative_to(templates)}\n{path.read_text(encoding='utf-8')}" for path in paths)
    lines = re.sub(r"\{#.*?#\}", "", whole, flags=re.DOTALL).splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.startswith("# "))


def _patch_text(manifest: Manifest, patch: Patch) -> str:
    project, where = manifest.path.parent.parent, Location(manifest.path, 1)
    path = project / patch.path
    if not path.resolve().is_relative_to(project.resolve()):
        hint = f"put the file itself there: cp --remove-destination $(readlink -f {patch.path}) {patch.path}"
        raise RenderError(Problem(f"patch {patch.path} is a link that leads out of the project", where, hint))
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"get it back: git checkout -- {patch.path}; or name another one here"
        raise RenderError(Problem(f"patch {patch.path} cannot be read: {error}", where, hint)) from error
    if b"\r" in content:  # no heredoc keeps it
        raise RenderError(Problem(f"patch {patch.path} has lines that end in CR LF", where, "write it with LF alone"))
    found = hashlib.sha256(content).hexdigest()
    if patch.sha256 not in {None, found}:
        hint = f"see what changed: git diff {patch.path}; if that is meant, write sha256: {found}"
        raise RenderError(Problem(f"patch {patch.path} has the SHA-256 {found}, not {patch.sha256}", where, hint))
    return text


def _overridden(manifest: Manifest) -> str:
    """An expansion that is empty while every pin is the manifest's: each value with the pin cut off."""
    return "".join(f"${{{name}#{value}}}" for name, value in manifest.pins.items())


def _dropping(values: dict[str, str]) -> str:
    """A line that `site` runs at interpreter start."""
    return f"import os; [os.environ.pop(k) for k, v in {values!r}.items() if os.environ.get(k) == v]\n"


class _Compiled(jinja2.FileSystemBytecodeCache):
    """Templates as they were compiled for an earlier run; where nothing can be kept, each run compiles them."""

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        # A path that the locale cannot read has no UTF-8.
        return super().get_cache_key(name, filename and ascii(filename))

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        with contextlib.suppress(OSError):
            COMPILED.mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


@cache
def _environment(templates: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,  # a misspelt name fails; it never renders as ''
        autoescape=False,  # noqa: S701 - Dockerfiles are not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=_Compiled(str(COMPILED)),
    )
    environment.filters |= {
        "shell": shlex.quote,
        "env_value": _env_value,
        "json_form": _json_form,
        "heredoc_body": _heredoc_body,
    }
    return environment


def _env_value(value: str) -> str:
    """`value` as the right side of ENV or LABEL: what stands in it stays as it stands."""
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'


def _json_form(words: Sequence[str]) -> str:
    """`words` as the JSON form of ENTRYPOINT."""
    return json.dumps(list(words))


def _heredoc_body(text: str, delimiter: str) -> str:
    """`text` as it may stand in a quoted heredoc: exact for every byte, so what cannot be is refused.

    Raises:
        RenderError: where the text holds its own delimiter, or no newline at its end.
    """
    if not text.endswith("\n"):
        message = f"{delimiter}: a heredoc always ends with a newline; the text does not"
        raise RenderError(Problem(message, hint="end the file's last line: echo >> FILE"))
    if f"\n{delimiter}\n" in f"\n{text}":
        message = f"{delimiter}: a line of the text is the heredoc's delimiter"
        raise RenderError(Problem(message, hint="write that line otherwise, as with a space before it"))
    return text[:-1]


def _place_in_template(error: jinja2.TemplateError) -> Location | None:
    """Where in a template `error` arose; jinja2 keeps that in the traceback only."""
    if isinstance(error, jinja2.TemplateSyntaxError) and error.filename:
        return Location(Path(error.filename), error.lineno, 1)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".j2")]
    return Location(Path(frames[-1].filename), frames[-1].lineno or 1, 1) if frames else None
