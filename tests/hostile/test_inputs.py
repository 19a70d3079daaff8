"""Hostile input is read or refused: a bounded run of what `make fuzz` does, and files that are made to hurt."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import fuzz
import inputs
import pytest
from copies import Project, copied

BOUNDED = 400  # inputs of each kind
MEMORY = 512 * 1024**2  # bytes of address space for a whole command

every_kind = pytest.mark.parametrize("kind", inputs.KINDS)


@every_kind
def test_input_is_read_or_refused_with_its_place(kind: str, tmp_path: Path) -> None:
    found = [outcome for _, outcome in inputs.outcomes(kind, range(BOUNDED), tmp_path)]
    assert len(found) == BOUNDED
    assert set(found) == ({"refused"} if kind == "bytes to the loader" else {"read", "refused"})


def test_what_would_steer_a_terminal_is_found() -> None:
    with pytest.raises(inputs.Steering):
        inputs.told(["\x1b[2J"])


def test_the_recorded_run_had_as_many_inputs_as_it_says() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| ([\d,]+) \| ([\d,]+) \|", fuzz.PATH.read_text("utf-8"), re.MULTILINE)
    found = {kind: int(read.replace(",", "")) + int(refused.replace(",", "")) for kind, read, refused in rows}
    assert found == fuzz.INPUTS
    assert list(fuzz.INPUTS) == list(inputs.KINDS)
    assert sum(fuzz.INPUTS.values()) == 100_000


# Files that are made to hurt, given to the command in a process with little memory

SMALL = (inputs.GOOD / "small.yaml").read_text("utf-8")
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60))
MEGABYTES = 5 * 1024**2
FILES = {
    "aliases of aliases": (SMALL + BOMB, "alias '\\*a0' is not allowed"),
    "10,000 brackets": (SMALL + "x: " + "[" * 10_000, "nested deeper than 16 levels"),
    "10,000 closed brackets": (SMALL + "x: " + "[" * 10_000 + "]" * 10_000, "nested deeper than 16 levels"),
    "10,000 braces": (SMALL + "x: " + "{a: " * 10_000, "nested deeper than 16 levels"),
    "600 indents": (
        SMALL + "x:\n" + "".join(f"{' ' * (n + 1)}a:\n" for n in range(600)),
        "nested deeper than 16 levels",
    ),
    "10,000 dashes": (SMALL + "x:\n  " + "- " * 10_000 + "a", "nested deeper than 16 levels"),
    "an honest file of 5 MB": (
        SMALL + "env:\n" + "".join(f"  V{n}: {{value: x, reason: y}}\n" for n in range(MEGABYTES // 30)),
        "file is larger than 256,000 bytes",
    ),
    "one line of 5 MB": (SMALL + "x: " + "y" * MEGABYTES, "file is larger than 256,000 bytes"),
    "as many keys as a file may hold": (
        SMALL + "env:\n" + "".join(f"  V{n}: {{value: x, reason: y}}\n" for n in range(6_500)),
        "",
    ),
    "as many faults as a file may hold": (SMALL + "".join(f"k{n}: x\n" for n in range(20_000)), "unknown key 'k19999'"),
    "as many anchors as a file may hold": (SMALL + "x: [" + "&a b," * 40_000 + "]", "anchor '&a' is not allowed"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copied(tmp_path_factory.mktemp("bombs"))


@pytest.mark.parametrize(("text", "said"), FILES.values(), ids=FILES)
def test_a_file_that_is_made_to_hurt_ends_in_words_and_within_its_memory(
    text: str, said: str, project: Project
) -> None:
    (project.root / "images/bomb.yaml").write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "builder", "check", "bomb"],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    assert "Traceback" not in done.stderr
    assert "MemoryError" not in done.stderr
    assert re.search(said, done.stderr)
    assert done.returncode == (3 if said else 5)  # what is right but for its size has no Dockerfile yet
