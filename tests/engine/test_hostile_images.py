"""An image that means harm fails its verification; the tool, the engine and the machine go on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
from conftest import FACTS, MANIFEST, quiet

from builder import buildkit, container, probing, verify
from builder import engine as engines
from builder.devices import Devices
from builder.engine import Engine
from builder.errors import BuilderError, TimeLimitError, VerificationError

PYTHON = FACTS.python.executable
SHA = 'echo "$(sha256sum | (read -r sum _; echo $sum))"'
DIGESTS = f"""cd /vime-check
programs=$(cat {" ".join(verify.PROGRAMS)} | {SHA})
list=$(cat checks.json | {SHA})
"""
RESULT = r"{\"program_sha256\": \"$programs\", \"list_sha256\": \"$list\", \"checks\": "
CHECK = r"{\"name\": \"a\", \"kind\": \"b\", \"outcome\": \"passed\", \"detail\": \"\", \"hint\": \"\", \"seconds\": "

# What stands in the place of the image's Python, or of its `timeout`; and what is said of it, by which kind of error.
HOSTILE: dict[str, tuple[str, str, type[BuilderError]]] = {
    "starts processes without end": (
        "while :; do sleep 300 & done",
        "Resource temporarily unavailable",
        TimeLimitError,
    ),
    "takes memory without end": ("x=xxxxxxxx; while :; do x=$x$x; done", "no result", VerificationError),
    "writes lines without end": ("yes vime-images", "vime-images", TimeLimitError),
    "writes one line of 4 MB": ("printf '%04000000d' 1", "exit code 0 and no result", VerificationError),
    "never ends, and its timeout neither": ("TIMEOUT while :; do sleep 1; done", "time limit of 3 s", TimeLimitError),
    "answers with no JSON": ('echo "$5{"', "its result cannot be read", VerificationError),
    "answers with a list": ('echo "$5[]"', "its result cannot be read", VerificationError),
    "answers with brackets without end": (
        "printf -v deep '%05000d' 0; echo \"$5${deep//0/[}\"",
        "its result cannot be read",
        VerificationError,
    ),
    "answers for another program": (
        f'{DIGESTS}programs=; echo "$5{RESULT}[]}}"',
        "belongs to another program",
        VerificationError,
    ),
    "answers with a number for the checks": (
        f'{DIGESTS}echo "$5{RESULT}7}}"',
        "cannot be read: checks: ",
        VerificationError,
    ),
    "answers with half a check": (
        f'{DIGESTS}echo "$5{RESULT}[{{}}]}}"',
        "cannot be read: checks.0.name: ",
        VerificationError,
    ),
    "answers with no checks": (f'{DIGESTS}echo "$5{RESULT}[]}}"', "does not name the checks", VerificationError),
    "answers with a check of its own": (
        f'{DIGESTS}echo "$5{RESULT}[{CHECK}1, \\"notes\\": []}}]}}"',
        "does not name the checks",
        VerificationError,
    ),
    "answers with half a letter": (
        f'{DIGESTS}echo "$5{RESULT}[{CHECK}1, \\"notes\\": [\\"\\\\ud800\\"]}}]}}"',
        "its result cannot be read: Invalid JSON",
        VerificationError,
    ),
}


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower than they are for others: this machine has other work too."""
    monkeypatch.setattr(verify, "TIME_LIMIT_S", 3)
    monkeypatch.setattr(container, "GRACE_S", 1)
    monkeypatch.setattr(container, "PROCESSES", 48)
    monkeypatch.setattr(container, "MEMORY_BYTES", 64 * 1024**2)


@contextlib.contextmanager
def hostile(engine: Engine, tiny: str, script: str) -> Iterator[str]:
    """An image whose Python is the script; or its `timeout`, where the script says so."""
    place, script = ("/bin/timeout", script[8:]) if script.startswith("TIMEOUT ") else (PYTHON, script)
    folder = PurePosixPath(place).parent
    text = f"FROM {tiny}\nRUN mkdir -p {folder}\nCOPY --chmod=755 <<'S' {place}\n#!/bin/bash\n{script}\nS\n"
    image = buildkit.build(engine, text, arguments={}, watch=quiet).image_id
    try:
        yield image
    finally:
        engine.remove_image(image)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("case", HOSTILE)
def test_an_image_that_means_harm_is_a_failure_with_a_short_word(engine: Engine, tiny: str, case: str) -> None:
    script, says, kind = HOSTILE[case]
    with hostile(engine, tiny, script) as image:
        verified = verify.verify(engine, image, MANIFEST, FACTS)
    assert type(verified.error) is kind
    assert says in str(verified.error)
    assert len(str(verified.error)) < 6000
    (check,) = verified.checks
    assert (check.name, check.outcome) == ("verification ran to its end", "failed")
    assert says in f"{check.detail}\n{check.hint}"
    mine = {"label": f"{engines.OWNER}={engine.owner}"}
    assert engine.api.containers(all=True, filters=mine) == []


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("answer", ["[]", "{", '{"nodes": 7}', '{"seconds": []}', "null"])
def test_a_probe_that_is_answered_with_nonsense_is_a_failure_too(engine: Engine, tiny: str, answer: str) -> None:
    script = f'[ "$1" != -c ] || exit 0\necho "$3"\'{answer}\''
    with hostile(engine, tiny, script) as image, pytest.raises(VerificationError, match="result cannot be read"):
        probing.probe(engine, image, PYTHON, Devices((), ()))


def test_a_container_has_no_way_out_of_its_scratch(engine: Engine, tiny: str) -> None:
    """Not into the host's files, processes, kernel or network, nor to more rights than none."""
    script = r"""
for place in / /etc /proc/sys/kernel /sys/fs/cgroup /dev; do
    touch "$place/x" 2> /dev/null && echo "wrote $place"
done
echo 1 > /proc/sysrq-trigger && echo "rang sysrq"
echo vime > /proc/sys/kernel/hostname && echo "named the host"
(exec 3<> /dev/tcp/192.0.2.1/443) 2> /dev/null && echo "reached a host"
for node in /dev/kfd /dev/mem /dev/sda /var/run/docker.sock /run/docker.sock; do
    [ -e "$node" ] && echo "saw $node"
done
while read -r name value; do
    case $name in Cap*:|NoNewPrivs:|Seccomp:) echo "$name $value" ;; esac
done < /proc/self/status
touch /given/x 2> /dev/null && echo "wrote /given"
touch /tmp/x && echo "scratch"
"""
    with engine.container(tiny, ["bash", "-c", script], files={"/given/a": b""}) as running:
        assert running.wait() == 0
        said = running.output().splitlines()
    told = [line for line in said if line.split()[0] in {"wrote", "rang", "named", "reached", "saw"}]
    assert told in ([], ["wrote /dev"]), said  # its own /dev, a file system in memory
    assert "scratch" in said
    assert {line for line in said if line.startswith("Cap")} == {
        f"{name}: {'0' * 16}" for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    }
    assert "NoNewPrivs: 1" in said


VOLUMES = ("/data", "/data/deeper", "/given", "/given/deeper", "/tmp", "/tmp/deeper", "/var/lib/", "relative")


def test_volumes_that_an_image_declares_can_be_read_and_not_be_filled(engine: Engine, tiny: str) -> None:
    """Each is a folder of the engine's disk; so is the one that our own programs come in."""
    text = f"""\
FROM {tiny}
RUN mkdir -p /data/deeper && echo content > /data/deeper/file
VOLUME {json.dumps(VOLUMES)}
"""
    script = """
for place in "$@" /data/deeper /given; do
    touch "$place/x" 2> /dev/null && echo "wrote $place"
done
while read -r _ place kind options; do
    case $options in rw*) echo "mount $kind $place" ;; esac
done < /proc/mounts
cat /data/deeper/file /given/a
"""
    before = volumes(engine)
    image = buildkit.build(engine, text, arguments={}, watch=quiet).image_id
    try:
        command = ["bash", "-c", script, "bash", *VOLUMES]
        with engine.container(image, command, files={"/given/a": b"given\n"}) as running:
            assert running.wait() == 0
            said = running.output().splitlines()
            assert volumes(engine) != before, "it has none"
    finally:
        engine.remove_image(image)
    written = {line.split()[1] for line in said if line.startswith("wrote")}
    assert written <= {"/tmp"}, said
    assert {"content", "given"} <= set(said)
    mounts = [line.split() for line in said if line.startswith("mount ")]
    on_a_disk = {place for _, kind, place in mounts if kind not in {"tmpfs", "proc", "devpts", "mqueue", "sysfs"}}
    assert on_a_disk <= {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}, said
    assert volumes(engine) == before


def volumes(engine: Engine) -> set[str]:
    return {volume["Name"] for volume in engine.api.volumes()["Volumes"] or ()}
