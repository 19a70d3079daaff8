"""Whether a patch applies to a tree, and if not, why: `git apply` is the judge, as in the image."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from builder.git import git

if TYPE_CHECKING:
    from pathlib import Path

Class = Literal[
    "applies",
    "applies with an offset",
    "already upstream",
    "partly upstream",
    "only with fuzz",
    "conflicts",
    "malformed",
]
GOOD: tuple[Class, ...] = ("applies", "applies with an offset")
REMEDIES: dict[Class, str] = {
    "applies": "",
    "applies with an offset": "it still finds its place; a patch made anew from the pinned tree finds it for sure",
    "already upstream": "drop it from the source's patches",
    "partly upstream": "make it anew from the pinned tree, without what is there",
    "only with fuzz": "make it anew from the pinned tree: with fuzz it may land in another function",
    "conflicts": "make it anew from the pinned tree",
    "malformed": "make it anew with `git diff`; an editor has changed it",
}
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*$", re.MULTILINE)
_WITHOUT_HUNKS = re.compile(r"^(?:rename|similarity|deleted|new file|old mode)", re.MULTILINE)
_NAME = re.compile(r"^(?:\+\+\+ (?:b/)?|--- (?:a/)?)(?!/dev/null)(\S+)", re.MULTILINE)
_HEAD = re.compile(r"^(?:\+\+\+|---|diff --git|rename from|copy from) (.+)$", re.MULTILINE)
_SHOWN = 8  # lines of a tree that a conflict shows


@dataclass(frozen=True, slots=True)
class Verdict:
    """What would become of a patch, and the particulars."""

    kind: Class
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.kind in GOOD


def touched(patch: Path) -> set[str]:
    """The paths that a patch may be about, at every depth that a verdict asks for."""
    text = patch.read_text("utf-8", "replace")
    heads = [line.partition("\t")[0] for line in _HEAD.findall(text)]
    names = {name.strip('"') for head in heads for name in (head, *head.split(" "))}
    return {"/".join(name.split("/")[depth:]) for name in names for depth in (0, 1, 2)} - {""}


def judge(tree: Path, patch: Path) -> Verdict:
    """The verdict on one patch; where it is good, the patch is applied.

    Args:
        tree: a scratch tree; a folder that is no repository, or one of its own.
    """
    text = patch.read_bytes().decode("utf-8", "replace")
    malformed = _malformed(text)
    if malformed:
        return Verdict("malformed", malformed)
    done = git(tree, "apply", "--verbose", str(patch))
    if done.returncode == 0:
        offsets = re.findall(r"\(offset (-?\d+) lines?\)", done.stderr)
        detail = f"{len(offsets)} hunks, by {', '.join(offsets)} lines"
        return Verdict("applies with an offset", detail) if offsets else Verdict("applies")
    return _refused(tree, patch, text, done.stderr)


def _malformed(text: str) -> str:
    """What is wrong with a patch whatever the tree; git would call most of it a conflict."""
    if not text.strip():
        return "it is empty"
    if "\r\n" in text:
        return "its lines end in CR LF, the tree's in LF"
    if not _HUNK.search(text) and not _WITHOUT_HUNKS.search(text):
        return "it has no hunk"
    lines = text.split("\n")
    for number, line in enumerate(lines):
        found = _HUNK.match(line)
        if not found:
            continue
        wanted = int(found[2] or 1), int(found[4] or 1)
        body: list[str] = []
        for following in lines[number + 1 :]:
            if not following.startswith((" ", "+", "-", "\\")) or _counts(body) == wanted:
                break
            body.append(following)
        if _counts(body) != wanted:
            said, has = (f"{old} lines before and {new} after" for old, new in (wanted, _counts(body)))
            return f"line {number + 1}: the hunk says {said}, and has {has}"
    return ""


def _counts(body: list[str]) -> tuple[int, int]:
    return sum(line[:1] in {" ", "-"} for line in body), sum(line[:1] in {" ", "+"} for line in body)


def _refused(tree: Path, patch: Path, text: str, said: str) -> Verdict:
    if re.search(r"corrupt patch|No valid patches|patch with only garbage|unrecognized input", said):
        return Verdict("malformed", said.strip().splitlines()[-1].removeprefix("error: "))
    if git(tree, "apply", "--check", "--reverse", str(patch)).returncode == 0:
        return Verdict("already upstream", "every hunk is in the tree")
    for depth in (0, 2):
        if git(tree, "apply", "--check", f"-p{depth}", str(patch)).returncode == 0:
            return Verdict("malformed", f"its paths have another depth: it is one for -p{depth}, the recipe uses -p1")
    hunks = _hunks(text)
    there = [name for name, hunk in hunks if _applies(tree, hunk, "--reverse")]
    if there:
        return Verdict("partly upstream", f"already there: {', '.join(there)}")
    if any(git(tree, "apply", "--check", f"-C{context}", str(patch)).returncode == 0 for context in (2, 1, 0)):
        return Verdict("only with fuzz", "not all lines around a hunk are those of the tree")
    broken = [(name, hunk) for name, hunk in hunks if not _applies(tree, hunk)]
    return Verdict("conflicts", "\n".join(_conflict(tree, name, hunk) for name, hunk in broken) or said.strip())


def _hunks(text: str) -> list[tuple[str, str]]:
    """Each hunk as a patch of its own, named by its file and number in it."""
    found: list[tuple[str, str]] = []
    for part in re.split(r"(?m)^(?=diff --git )", text) if "diff --git " in text else re.split(r"(?m)^(?=--- )", text):
        places = [match.start() for match in _HUNK.finditer(part)]
        if not places:
            continue
        head = part[: places[0]]
        name = _NAME.findall(head)
        for number, (start, end) in enumerate(zip(places, [*places[1:], len(part)], strict=True), 1):
            found.append((f"{name[-1] if name else '?'} hunk {number}", head + part[start:end]))
    return found


def _applies(tree: Path, hunk: str, *options: str) -> bool:
    return git(tree, "apply", "--check", *options, "-", given=hunk).returncode == 0


def _conflict(tree: Path, name: str, hunk: str) -> str:
    """A hunk that finds no place, with the lines that stand there now."""
    path = tree / name.rpartition(" hunk ")[0]
    found = _HUNK.search(hunk)
    if not path.is_file():
        return f"{name}: the tree has no such file"
    start = int(found[1]) if found else 1
    lines = path.read_text("utf-8", "replace").splitlines()
    first = max(1, min(start, len(lines) - _SHOWN + 1))  # of a shorter file, its end
    there = lines[first - 1 : first - 1 + _SHOWN]
    shown = "".join(f"\n    {first + number}: {line}" for number, line in enumerate(there))
    return f"{name}, line {start}; there stands now:{shown or ' nothing'}"
