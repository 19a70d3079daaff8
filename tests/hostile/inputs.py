"""Hostile input for what reads: each is made from its kind and number alone, so one that goes wrong can be made again."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from manifests import ROOT, facts_of

from builder import dockerfile, facts, located_yaml, manifest, render, trace
from builder.errors import BuilderError, ManifestError, Problem

GOOD = ROOT / "tests/manifests/good"
MANIFESTS = [(path, path.read_text("utf-8")) for path in (GOOD / "small.yaml", GOOD / "spelling.yaml")]
FACTS = (ROOT / "tests/manifests/images/bases/spelling.yaml").read_text("utf-8")
# What readers, shells, Dockerfiles, templates, git, pip, terminals and browsers give a meaning to.
BITS = [
    *"\0\a\b\t\n\v\f\r\x1b\x7f\x85\xa0\xad 'éß\"\\$`!#%&*()[]{}<>|;:,.?/~^=+-_@0aZ",
    *("\u061c", "\u200b", "\u200e", "\u2028", "\u202e", "\u2066", "\ufeff", "\ufffe", "\ufffd", "\U0001f600", "\U000e0001"),
    *("${x}", "$(id)", "`id`", "&&id", ";id", "|id", "\\\n", "EOF", "RUN id", "# syntax=x", "{{ 7*7 }}", "{% raw %}"),
    *("--upload-pack=id", "-c", "--index-url=x", "ext::sh", "file:///etc", "../..", "/etc/passwd", "~root", "https://a:b@c"),
    *("\x1b]0;x\a", "\x1b[2J", "<script>", "&lt;", "![x](y)", "*a", "&a", "!!python/object:os.system", "<<:", "? ", "- "),
    *("|", ">-", "'", '"', "{", "}", "[", "]", ": ", "%YAML 9.9", "---", "...", "null", "~", "yes", "1e9", "0x1f", "\ud7ff"),
]  # fmt: skip

SEEN = [bit for bit in BITS if bit.isprintable()]


class Steering(AssertionError):  # noqa: N818 (what is told would steer)
    """Something for a terminal has a character that steers it."""


def told(texts: Sequence[str]) -> None:
    for text in texts:
        if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text):
            raise Steering(f"{found[0]!r} in {text!r}")


def refused(problems: Sequence[Problem]) -> str:
    """A refusal has a place for each of its faults."""
    assert problems
    assert all(problem.where for problem in problems)
    told([str(problem) for problem in problems])
    return "refused"


def document(content: bytes) -> str:
    try:
        read = located_yaml.parse(content, Path("x.yaml"))
    except ManifestError as error:
        return refused(error.problems)
    text = read.texts[read.path]
    assert all(0 <= place.start <= place.end <= len(text) for place in read.places.values())
    return refused(read.problems) if read.problems else "read"


def image(path: Path, content: bytes) -> str:
    """A manifest is refused, or its Dockerfile is one of the steps that it asks for and no other."""
    try:
        written = manifest.parse(content, path)
        text = render.render(written, facts_of(written))
    except BuilderError as error:
        return refused(error.problems)
    known = {f"{kind}_{name.upper()}" for name in written.sources for kind in ("BUILD", "FETCH", "INSTALL")}
    installed = {step.name for step in dockerfile.parse(text) if re.match("(BUILD|FETCH|INSTALL)_", step.name)}
    assert installed - {"BUILD_TOOLS", "INSTALLER_PY"} <= known | {
        f"INSTALL_{name.upper()}" for name in written.prebuilt
    }
    return "read"


def base(content: bytes, scratch: Path) -> str:
    (scratch / "facts.yaml").write_bytes(content)
    try:
        facts.load(scratch / "facts.yaml")
    except ManifestError as error:
        return refused(error.problems)
    return "read"


def events(encoded: Sequence[str]) -> str:
    watched, outcome = trace.Trace(), "read"
    for event in encoded:
        try:
            told([str(line) for line in watched.feed(event)])
        except ValueError as error:  # noqa: PERF203 (each event is one to itself)
            if type(error) is not ValueError:  # what `feed` promises, and nothing that merely is one
                raise
            outcome = "refused"
    told([line for step in watched.steps for line in step.last_lines])
    watched.failed("x")
    return outcome


# How they are made


def noise(dice: Random, longest: int = 200) -> bytes:
    return dice.randbytes(dice.randrange(longest))


def words(dice: Random, most: int = 40) -> str:
    """Of a few kinds of bits, half the time of such alone as a reader lets through."""
    bits = dice.sample(dice.choice([BITS, SEEN]), k=12)
    return "".join(dice.choices(bits, k=dice.randrange(most)))


def damaged(dice: Random, text: str) -> bytes:
    """A text that is right but for a few edits: in its lines, in its scalars, in its bytes."""
    lines = text.split("\n")
    for _ in range(dice.randint(0, 2)):
        at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
        match dice.randrange(6):
            case 0:
                lines[at] = re.sub(r"(: |- ).*", lambda found: found[1] + words(dice, 6), lines[at])
            case 1:
                lines[at] = re.sub(r"\w+", lambda _: words(dice, 4), lines[at], count=1)
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines.insert(at, lines[other])
            case 4:
                lines[at] = " " * dice.randrange(5) + lines[at].strip()
            case _:
                place = dice.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:place] + dice.choice(BITS) + lines[at][place:]
    content = bytearray("\n".join(lines).encode())
    if not dice.randrange(8):
        content[dice.randrange(len(content))] = dice.randrange(256)
    return bytes(content)


def event(dice: Random) -> str:
    """One of BuildKit's messages, with anything in it, whole or damaged."""
    status: Any = trace._status_response()  # noqa: SLF001 (the one description of the message)
    digest = dice.choice(["sha256:1", "sha256:2", ""])
    name = dice.choice(
        ["[ 2/28] RUN <<'A'", f"[1/2] RUN {words(dice)}", f"importing cache manifest from {words(dice)}", words(dice)]
    )
    moment = {"seconds": dice.randrange(-(2**63), 2**63), "nanos": dice.randrange(-(2**31), 2**31)}
    ended = {"completed": moment} if dice.randrange(2) else {}
    message = status(
        vertexes=[
            {"digest": digest, "name": name, "started": moment, "error": dice.choice(["", words(dice)]), **ended}
        ],
        logs=[{"vertex": digest, "msg": dice.choice([noise(dice), words(dice).encode()])}],
        warnings=[{"vertex": digest, "short": noise(dice)}],
    )
    content = bytearray(message.SerializeToString())
    for _ in range(dice.choice([0, 0, 0, 1, 8])):
        content[dice.randrange(len(content))] = dice.randrange(256)
    whole = base64.b64encode(content).decode()
    return dice.choice([whole, whole, whole, base64.b64encode(noise(dice)).decode(), words(dice)])


def _image(dice: Random, _: Path) -> str:
    path, text = dice.choice(MANIFESTS)
    return image(path, damaged(dice, text))


KINDS: Mapping[str, Callable[[Random, Path], str]] = {
    "bytes to the loader": lambda dice, _: document(noise(dice)),
    "words to the loader": lambda dice, _: document(words(dice).encode("utf-8", "surrogatepass")),
    "values to the loader": lambda dice, _: document(f"a: {words(dice)}\nb:\n  - {words(dice)}\n".encode()),
    "damaged manifests": _image,
    "damaged facts": lambda dice, scratch: base(damaged(dice, FACTS), scratch),
    "events to the trace decoder": lambda dice, _: events([event(dice) for _ in range(dice.randint(1, 4))]),
}


def outcomes(kind: str, numbers: range, scratch: Path) -> Iterator[tuple[int, str]]:
    """What becomes of each input of a kind."""
    for number in numbers:
        try:
            yield number, KINDS[kind](Random(f"{kind} {number}"), scratch)  # noqa: S311 (no secret)
        except Exception as error:  # noqa: PERF203 (each input is one to itself)
            raise AssertionError(f"input {number} of {kind!r}") from error
