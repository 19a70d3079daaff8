"""The table of failures in docs/engines.md: each row is written by the test that made it happen, or compared with it.

To add one: make it happen in a test, end that with `told("the situation", error)`, and say in `HOW` how it was run.
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from builder.errors import BuilderError

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "engines.md"
_ROW = re.compile(r"^\| (?P<situation>[^|]+) \| (?P<code>\d+) \| (?P<told>.*) \| (?P<how>[^|]+) \|$", re.MULTILINE)
_REGISTRY = "Debian's docker-registry on loopback"
HOW = {
    "Dockerfile syntax": "`RUNN` in a Dockerfile",
    "base not found by BuildKit": "`FROM` names a closed port of loopback",
    "base not found": f"a repository that is not there; {_REGISTRY}",
    "base with another digest": f"a digest that the tag never had; {_REGISTRY}",
    "base with a wrong password": f"{_REGISTRY}, with basic authentication",
    "base without a login": f"{_REGISTRY}, with basic authentication",
    "closed port": "`DOCKER_HOST` names a closed port of loopback",
    "containerd store before 27.5": "a private engine, a real Docker 26.1.5 with `containerd-snapshotter`",
    "credential program broken": "`credHelpers` names a program that is not there",
    "disk full in a pull": f"a private engine with a disk of 4 MB; {_REGISTRY}",
    "disk full in a step": "a private engine with a disk of 96 MB, filled by the step",
    "disk full in the build context": "a private engine with a disk of 96 MB, a context of 120 MB",
    "engine behind ssh": "`DOCKER_HOST=ssh://...`, the SDK without paramiko",
    "engine dies in a build": "a private engine, SIGKILL while a step runs",
    "engine dies in a verification": "a private engine, SIGKILL while a container runs",
    "engine stops in a build": "a private engine, SIGTERM while a step runs, as an upgrade of its package does",
    "engine stops in a verification": "a private engine, SIGTERM while a check runs, as an upgrade of its package does",
    "engine too old": "this engine behind a front that says 25.0.9; no engine so old was run",
    "logins that cannot be read": "a `config.json` whose `auth` is no base64",
    "no engine": "`DOCKER_HOST` names a path where nothing is",
    "no network in a step": "a step that connects, in a build without network",
    "no permission": "user 65534 at the socket of this engine",
    "push to a registry that is not there": "a closed port of loopback",
    "push with a wrong password": f"{_REGISTRY}, with basic authentication",
    "push without a login": f"{_REGISTRY}, with basic authentication",
    "registry breaks off in a layer": f"{_REGISTRY}, behind a front that closes the connection",
    "registry never answers": "a port of loopback that accepts and says nothing",
    "registry not reached": "a closed port of loopback",
    "stale socket": "a socket whose owner has ended",
    "time limit of a build": "a limit of 2 s, a step that sleeps",
    "time limit of a verification": "a limit of 1 s, a check that sleeps",
}
# What is another one each time.
_VARYING = (
    (r"sha256:[0-9a-f]{64}", "sha256:..."),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (rf"{re.escape(str(ROOT))}/", ""),
    (r"(unix://)?/(tmp/pytest|run/v|var/lib)[^\s'\"),;:]+", "PATH"),
    (r"vime-images-test/tiny:[0-9a-f]+", "BASE"),
    (r"vime-images-test/[0-9a-f]+:tiny-gfx942", "IMAGE"),
    (r"\.yaml:\d+:\d+:", ".yaml:LINE:COLUMN:"),
    (r"is version [^;]+", "is version VERSION"),
    (r"had run for \d+ s", "had run for N s"),
    (r"\[\w+\(?[^]]*0x[0-9a-f]+[^]]*\]", "..."),
)


class Table:
    """The rows, as they stand in the file and as this run makes them."""

    def __init__(self, *, update: bool, engine: str) -> None:
        self.update = update
        self.engine = engine
        text = PATH.read_text(encoding="utf-8") if PATH.is_file() else ""
        self.rows = {row["situation"]: (int(row["code"]), row["told"]) for row in _ROW.finditer(text)}
        self.made: dict[str, tuple[int, str]] = {}

    def __call__(self, situation: str, error: BuilderError) -> None:
        """Record what a situation came to.

        Raises:
            AssertionError: where the file says another exit code, or gives other advice.
        """
        row = error.exit_code, _cell(str(error))
        self.made[situation] = row
        if not self.update:
            assert situation in self.rows, f"docs/engines.md lacks {situation!r}: make engine-table"
            code, told = self.rows[situation]
            assert (code, _advice(told)) == (row[0], _advice(row[1])), "docs/engines.md is stale: make engine-table"

    def write(self) -> None:
        if not self.made:
            return
        rows = {**self.rows, **self.made}
        lines = [
            f"| {name} | {code} | {told} | {HOW[name]} |"
            for name, (code, told) in sorted(rows.items(), key=_order)
            if name in HOW  # a row that no test makes any more goes
        ]
        head = PATH.read_text(encoding="utf-8").partition("| what goes wrong |")[0]
        head = re.sub(r"Written on .*", f"Written on {dt.date.today()} with Docker {self.engine}.", head)  # noqa: DTZ011 (a day)
        PATH.write_text(
            f"{head}| what goes wrong | exit code | what is said | how it was run |\n"
            "| --- | --- | --- | --- |\n" + "\n".join(lines) + "\n",
            "utf-8",
        )


def _order(row: tuple[str, tuple[int, str]]) -> tuple[int, str]:
    return row[1][0], row[0]


def _cell(text: str) -> str:
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    lines = [line.strip().replace("|", "\\|").replace("`", "'") for line in text.splitlines()]
    return "<br>".join(f"`{line}`" for line in lines if line)


def _advice(cell: str) -> list[str]:
    """Our own words of a message; the engine's differ from one version to the next."""
    return [line for line in cell.split("<br>") if line.startswith("`hint: ")]
