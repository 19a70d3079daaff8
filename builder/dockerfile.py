"""Read a generated Dockerfile back: its instructions, its scripts, and what they call."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEREDOC = re.compile(r"<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_COMMAND = re.compile(r"[a-z][\w.+-]*")
_INNER = re.compile(r"\$\(([a-z][\w.+-]*)")  # within a quoted word
_PATTERN = re.compile(r"^\s*[\w*|. -]+\)", re.MULTILINE)  # of a `case`
# What follows one of these in a script is a command.
_BEFORE_A_COMMAND = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{"})
_BUILTIN = _BEFORE_A_COMMAND | {
    *("case", "cd", "declare", "done", "echo", "esac", "exec", "exit", "export", "false", "fi", "for", "local"),
    *("printf", "read", "return", "set", "test", "trap", "true", "unset", "wait"),
}
# What the programs of the image call themselves.
_CALLED_BY = {"/bin/source.py": "git"}


class Heredoc(NamedTuple):
    """A heredoc: what stands in it, with its last newline, and the number of its first line."""

    delimiter: str
    quoted: bool
    text: str
    line: int

    @property
    def body(self) -> tuple[str, ...]:
        return tuple(self.text.split("\n")[:-1])


class Instruction(NamedTuple):
    """One instruction: its keyword, its text without heredoc bodies, its heredocs."""

    keyword: str
    text: str
    line: int
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def name(self) -> str:
        """The step's name: its heredoc's delimiter, else its text."""
        return self.heredocs[0].delimiter if self.heredocs else f"{self.keyword} {self.text}"

    @property
    def inputs(self) -> tuple[str, str, tuple[tuple[str, ...], ...]]:
        """What the builder sees of it; where it stands, and the comments around it, are not among that."""
        return self.keyword, self.text, tuple(heredoc.body for heredoc in self.heredocs)

    def uses(self, variable: str) -> bool:
        texts = [self.text, *(heredoc.text for heredoc in self.heredocs if self.keyword == "RUN")]
        return any(variable in text and variable in _VARIABLE.findall(text) for text in texts)


@lru_cache(maxsize=2)  # one render is looked at by rules, tag and matrix, one after the other
def parse(text: str) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile in order; comments are left out.

    Raises:
        ValueError: where a heredoc never ends.
    """
    return tuple(_instructions(text if text.endswith("\n") else f"{text}\n"))


def _instructions(text: str) -> Iterator[Instruction]:
    """Heredocs are found by their ends: most of a file is programs, whose lines nobody asks for."""
    at, number = 0, 1
    while at < len(text):
        first, (line, at) = number, _line(text, at)
        number += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = [line]
        while parts[-1].endswith("\\"):
            parts[-1] = parts[-1][:-1]
            part, at = _line(text, at)
            parts.append(part)
            number += 1
        keyword, _, rest = " ".join(part.strip() for part in parts).partition(" ")
        heredocs: list[Heredoc] = []
        if keyword in {"RUN", "COPY", "ADD"}:
            for _, quote, delimiter in _HEREDOC.findall(rest):
                end = text.find(f"\n{delimiter}\n", at - 1) + 1
                if not end:
                    raise ValueError(f"line {first}: heredoc {delimiter} never ends")
                heredocs.append(Heredoc(delimiter, bool(quote), text[at:end], number))
                number += text.count("\n", at, end) + 1
                at = end + len(delimiter) + 1
        yield Instruction(keyword, rest, first, tuple(heredocs))


def _line(text: str, at: int) -> tuple[str, int]:
    """The line that begins at `at`, and where the next one does; at the end, an empty one."""
    end = text.find("\n", at)
    return (text[at:], len(text)) if end < 0 else (text[at:end], end + 1)


def commands(step: Instruction) -> frozenset[str]:
    """The programs that a step finds on PATH: those of its script, and those that the image's programs call."""
    return _commands("".join(heredoc.text for heredoc in step.heredocs))


@lru_cache(maxsize=128)  # images share most of their scripts
def _commands(script: str) -> frozenset[str]:
    lines = [line for line in script.split("\n") if not line.lstrip().startswith("#")]
    text = _PATTERN.sub("", "\n".join(lines).replace("\\\n", " "))
    words = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    words.whitespace, words.commenters, words.whitespace_split = " \t", "", True
    found, expected = {tool for program, tool in _CALLED_BY.items() if program in script}, True
    for word in words:
        found.update(_INNER.findall(word))
        if expected and _COMMAND.fullmatch(word):
            found.add(word)
        assigns = expected and re.match(r"\w+=", word)
        begins = word[-1:] in ";|&(\n" and not set(word) & set("<>")
        expected = bool(assigns) or begins or word in _BEFORE_A_COMMAND
    return frozenset(found) - _BUILTIN
