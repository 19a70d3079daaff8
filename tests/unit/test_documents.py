"""What documents tell people to type is there: commands, options, images, make targets, files."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import click
import pytest
from manifests import ROOT

from builder import cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("**/*.md"))]
COMMAND = re.compile(r"(?:python -m builder|\.venv/bin/vime-images) +(?P<words>[a-z][^`\n|<>&;)]*)")
TARGET = re.compile(r"(?:^|`|&& )make (?P<target>[a-z][a-z-]*)", re.MULTILINE)
FILE = re.compile(
    r"`(?P<path>(?:builder|docs|images|schema|scripts|standins|templates|tests)/[\w./-]+)`|\]\((?P<link>[\w./-]+)\)"
)
MADE_LATER = re.compile(r"v26\.5|rocm7\.15|IMAGE|BASE")  # what docs/new-image.md makes


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of ours, without comments; it may go on behind a backslash, or in its backticks."""
    text = re.sub(r"(?<!`)`(?!`)[^`]*`", lambda span: re.sub(r"\s*\n\s*", " ", span[0]), text.replace("\\\n", " "))
    for found in COMMAND.finditer(re.sub(r"<(\w+)>", r"\1", text)):
        yield shlex.split(found["words"].rstrip(" .,:'\"*]"), comments=True)


def fault(words: list[str]) -> str | None:
    """What a command line has that its command does not know."""
    command = cli.main.commands.get(words[0])
    if command is None:
        return f"no command {words[0]}"
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    options = [word.partition("=")[0] for word in words[1 : words.index("--") if "--" in words else None]]
    missing = [word for word in options if word.startswith("--") and word not in known]
    return f"{words[0]} has no {', '.join(missing)}" if missing else None


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    folder = path.parent
    faults = [told for words in commands(text) if (told := fault(words))]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    faults += [f"no target {name}" for name in TARGET.findall(text) if f"\n{name}:" not in makefile]
    for found in FILE.finditer(text):
        place = ROOT / found["path"] if found["path"] else folder / found["link"]
        if not place.exists() and not MADE_LATER.search(found[0]):
            faults.append(f"no file {found[0]}")
    assert faults == []


def refusal(words: list[str]) -> str | None:
    """What a command says of arguments that it cannot take; it does nothing."""
    try:
        cli.main.commands[words[0]].make_context(words[0], words[1:])
    except click.exceptions.Exit:  # --help, and what a shell asks for completion
        return None
    except click.ClickException as error:
        return f"{shlex.join(words)}: {error.format_message()}"
    return None


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_has_people_type_is_taken_by_its_command(path: Path) -> None:
    typed = [words for words in commands(path.read_text(encoding="utf-8")) if len(words) > 1]  # else it is only named
    assert [told for words in typed if (told := refusal(words))] == []


def test_what_a_document_has_make_do_are_commands_that_take_it() -> None:
    """`make -n` says what it would run; of that, what is ours."""
    lines = {
        line
        for path in DOCUMENTS
        for line in re.findall(r"(?:^|`|&& )(make [^`\n#&|]+)", path.read_text(), re.MULTILINE)
    }
    found = [words for line in lines for words in commands(asked_of_make(line))]
    assert {"rehearse", "image", "preflight", "bump", "facts", "doctor", "lock"} <= {words[0] for words in found}
    assert [told for words in found if (told := refusal(words))] == []


def asked_of_make(line: str) -> str:
    words = shlex.split(line.rstrip(" .,:;"))
    # The make that runs the tests hands its own arguments on.
    own = {
        name: value for name, value in os.environ.items() if name != "ARGS" and not name.startswith(("MAKE", "MFLAGS"))
    }
    command = ["make", "--dry-run", *words[1:]]
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return re.sub(r"\d?>+ *\S+", "", done.stdout)


def test_a_command_or_option_that_is_gone_is_found() -> None:
    assert list(commands("a `python -m builder chek x` b")) == [["chek", "x"]]
    assert fault(["chek", "x"]) == "no command chek"
    assert fault(["check", "--nothing", "rocm7.14"]) == "check has no --nothing"
    assert fault(["verify", "--strict", "vime:x"]) is None
    assert list(commands("`python -m builder debug\n  x Y` <b> `python -m builder facts <base>`")) == [
        ["debug", "x", "Y"],
        ["facts", "base"],
    ]
    assert refusal(["diff", "a", "b", "--format", "tabel"]) is not None
    assert refusal(["debug", "rocm7.14"]) is not None
