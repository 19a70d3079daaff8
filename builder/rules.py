"""What every generated Dockerfile keeps, whatever manifest and base it was given; one that does not fails to render."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from builder.dockerfile import Instruction, commands, parse
from builder.errors import Location, Problem

if TYPE_CHECKING:
    from pathlib import Path

STRICT_SHELL = '["/bin/bash", "-euo", "pipefail", "-c"]'
# BuildKit's parser reads lines into a buffer of 64 KiB and cuts what is longer.
LONGEST_LINE = 65_535

_DIRECTIVE = re.compile(r"\n(#[^\S\n]*(?:syntax|escape|check)[^\S\n]*=.*)")
_CONTROLS = [chr(code) for code in range(0x20) if chr(code) not in "\t\n"]
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?[-=]")
_ENV = re.compile(r'(\w+)="?([^"]*)"?')


class Base(NamedTuple):
    """What is known of the image that the file starts from.

    Attributes:
        variables: its ENV; None is a value that nobody knows.
        tools: the names on its PATH; None where nobody knows them.
    """

    variables: Mapping[str, str | None]
    tools: Collection[str] | None = None


class Context(NamedTuple):
    """What a rule may look at."""

    text: str
    instructions: tuple[Instruction, ...]
    base: Base

    def scripts(self, *marks: str) -> Iterator[tuple[Instruction, int, str]]:
        """Each line of a RUN that has one of `marks` in it: its instruction, its number, its text."""
        for instruction in self.instructions:
            if instruction.keyword != "RUN":
                continue
            texts = [(heredoc.line, heredoc.text) for heredoc in instruction.heredocs]
            for first, text in texts or [(instruction.line, instruction.text)]:
                if any(mark in text for mark in marks):
                    lines = enumerate(text.split("\n"), first)
                    yield from ((instruction, i, line) for i, line in lines if any(mark in line for mark in marks))


Finding = tuple[int, str]


def builder_stops_first(context: Context) -> Iterator[Finding]:
    """The classic builder drops heredocs silently, so what it refuses stands before the first."""
    for instruction in context.instructions:
        if instruction.keyword == "RUN" and instruction.text.startswith("--mount=") and not instruction.heredocs:
            return
        if instruction.keyword in {"RUN", "COPY", "ADD"}:
            yield instruction.line, "a step stands before the `RUN --mount` that stops the classic builder"
            return


def one_strict_shell(context: Context) -> Iterator[Finding]:
    shells = [instruction for instruction in context.instructions if instruction.keyword == "SHELL"]
    if len(shells) != 1 or shells[0].text != STRICT_SHELL:
        yield (shells[-1].line if shells else 1), f"want exactly one SHELL {STRICT_SHELL}"
        return
    scripts = [i for i in context.instructions if i.keyword == "RUN" and i.heredocs]
    yield from ((i.line, "a script stands before SHELL") for i in scripts if i.line < shells[0].line)


def heredocs_are_quoted_and_named_once(context: Context) -> Iterator[Finding]:
    seen: set[str] = set()
    for instruction in context.instructions:
        for heredoc in instruction.heredocs:
            if not heredoc.quoted:
                yield instruction.line, f"heredoc {heredoc.delimiter} is not quoted"
            if heredoc.delimiter in seen:
                yield instruction.line, f"two steps are named {heredoc.delimiter}"
            seen.add(heredoc.delimiter)


def no_build_context(context: Context) -> Iterator[Finding]:
    for instruction in context.instructions:
        if instruction.keyword == "ADD" or (instruction.keyword == "COPY" and not instruction.heredocs):
            yield instruction.line, f"{instruction.keyword} needs a build context"


def one_stage(context: Context) -> Iterator[Finding]:
    stages = [instruction for instruction in context.instructions if instruction.keyword == "FROM"]
    if len(stages) != 1:
        yield (stages[1].line if stages else 1), f"{len(stages)} stages instead of one"


def no_syntax_line(context: Context) -> Iterator[Finding]:
    """A syntax line makes BuildKit ask a registry for its frontend."""
    text = f"\n{context.text}"
    for found in _DIRECTIVE.finditer(text):
        yield text.count("\n", 0, found.end()), f"parser directive {found[1]!r}"


def argument_stands_before_its_first_use(context: Context) -> Iterator[Finding]:
    """Every ARG declared so far is in each later RUN's cache key, used or not."""
    for at, instruction in enumerate(context.instructions):
        if instruction.keyword != "ARG":
            continue
        name = instruction.text.partition("=")[0]
        following = (i for i in context.instructions[at + 1 :] if i.keyword != "ARG" or i.uses(name))
        user = next(following, None)
        if user is None or not user.uses(name):
            yield instruction.line, f"ARG {name} does not stand directly before its first use"


def argument_is_not_shadowed(context: Context) -> Iterator[Finding]:
    """An ENV of the base wins over an ARG of the same name, silently."""
    for instruction in context.instructions:
        name = instruction.text.partition("=")[0]
        if instruction.keyword == "ARG" and name in context.base.variables:
            yield instruction.line, f"ARG {name} is shadowed by the base's ENV {name}"


def default_is_not_shadowed(context: Context) -> Iterator[Finding]:
    """A script's `${NAME:-default}` never takes its default where the base sets NAME."""
    for instruction, number, line in context.scripts("${"):
        for name in _DEFAULT.findall(line):
            if name in context.base.variables:
                yield number, f"the default of {name} in {instruction.name} is shadowed by the base's ENV {name}"


def no_variable_is_native(context: Context) -> Iterator[Finding]:
    """A list of GPUs that says `native` is read where there is none, or where there is another."""
    found = {name: (1, value) for name, value in context.base.variables.items()}
    for instruction in context.instructions:
        if instruction.keyword == "ENV":
            found |= {name: (instruction.line, value) for name, value in _ENV.findall(instruction.text)}
    for name, (line, value) in found.items():
        if value == "native":
            yield line, f"the image has {name}=native, which is the GPU of whoever compiles: set the targets"


def every_tool_is_in_the_base(context: Context) -> Iterator[Finding]:
    if context.base.tools is None:
        return
    for instruction in context.instructions:
        if instruction.keyword != "RUN":
            continue
        for tool in sorted(commands(instruction) - set(context.base.tools)):
            yield instruction.line, f"{instruction.name} calls {tool}, which the base does not have"


def every_pip_install_is_guarded(context: Context) -> Iterator[Finding]:
    """Two forms may call pip themselves: a list by hash, and what stands on the disk without dependencies."""
    for instruction, number, line in context.scripts("install"):
        if not re.search(r"\b(pip3?|uv)\b.*\binstall\b|\beasy_install\b", line) or line.lstrip().startswith("#"):
            continue
        words = set(line.split())
        by_hash = {"--no-deps", "--require-hashes"} <= words
        local = {"--no-deps", "--no-index", "--no-build-isolation"} <= words
        if not (by_hash or local):
            yield number, f"pip install outside the guard, in {instruction.name}"
        forbidden = words & {
            "--force-reinstall",
            "--ignore-installed",
            "--extra-index-url",
            "--upgrade",
            "-U",
        }
        if forbidden:
            yield number, f"{', '.join(sorted(forbidden))} in {instruction.name}"
        if not instruction.heredocs or "/bin/seal.py" not in instruction.heredocs[0].text:
            yield number, f"{instruction.name} installs and does not compare the seal"


def every_assertion_can_fail(context: Context) -> Iterator[Finding]:
    """`! command` never stops a script, and `|| true` hides a failure."""
    for _, number, line in context.scripts("!", "||"):
        if re.match(r"\s*!\s", line):
            yield number, "an assertion by a negated command never fails"
        if re.search(r"\|\|\s*(true|:)(\s|$)", line):
            yield number, "a failure is hidden"


def no_foreign_rocm(context: Context) -> Iterator[Finding]:
    """Not every base has /opt/rocm; its ROCM_PATH says where ROCm is."""
    for _, number, _ in context.scripts("/opt/rocm"):
        yield number, "/opt/rocm stands literally in a script"


def lines_fit_the_parser(context: Context) -> Iterator[Finding]:
    if not _has_a_long_line(context.text) and not any(control in context.text for control in _CONTROLS):
        return
    for number, line in enumerate(context.text.split("\n"), 1):
        if (length := len(line.encode())) > LONGEST_LINE:
            yield number, f"line of {length} bytes; BuildKit cuts at {LONGEST_LINE}"
        if any(control in line for control in _CONTROLS):
            yield number, "control character"


def _has_a_long_line(text: str) -> bool:
    """Whether a line may be too long, without a look at each of thousands; a character has at most 4 bytes."""
    at, step = 0, LONGEST_LINE // 4
    while len(text) - at > step:
        end = text.rfind("\n", at, at + step)
        if end < 0:
            return True
        at = end + 1
    return False


Rule = Callable[[Context], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    argument_is_not_shadowed,
    argument_stands_before_its_first_use,
    builder_stops_first,
    default_is_not_shadowed,
    every_assertion_can_fail,
    every_pip_install_is_guarded,
    every_tool_is_in_the_base,
    heredocs_are_quoted_and_named_once,
    lines_fit_the_parser,
    no_build_context,
    no_foreign_rocm,
    no_syntax_line,
    no_variable_is_native,
    one_stage,
    one_strict_shell,
)


def problems(text: str, path: Path, base: Base) -> list[Problem]:
    """Every breach of a rule, each at its line of the generated text."""
    try:
        instructions = parse(text)
    except ValueError as error:
        return [Problem(str(error), Location(path, 1))]
    context = Context(text, instructions, base)
    found = sorted((finding, rule.__name__) for rule in RULES for finding in rule(context))
    return [Problem(f"{message} ({rule})", Location(path, line)) for (line, message), rule in found]
