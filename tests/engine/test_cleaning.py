"""What `clean` takes away, and what it leaves, on a real engine with strangers' things in it."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder import buildkit, cleaning, client
from builder.engine import CLIENT, OWNER, Engine
from builder.lists import CACHE
from builder.project import ROOT
from builder.trace import Event


def quiet(_: Event) -> None:
    """Watch nothing."""


@pytest.fixture
def apart(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A name for labels and tags: what another test or user of this engine has is a stranger's."""
    name = secrets.token_hex(4)
    monkeypatch.setattr(cleaning, "OWNER", f"{OWNER}.{name}")
    monkeypatch.setattr(cleaning, "LABEL", f"vime-image-{name}")
    monkeypatch.setattr(cleaning, "DEBUG", f"vime-image-{name}.debug")
    monkeypatch.setattr(cleaning, "CACHE", f"{CACHE}{name}-")
    yield name
    for image in engine.api.images(filters={"label": f"test={name}"}):
        engine.api.remove_image(image["Id"], force=True)


NOWHERE = Path("/nowhere")  # a checkout without proofs


def made(engine: Engine, tiny: str, name: str, *tags: str, label: str = "") -> str:
    """An image with those tags, and with a label."""
    text = f"FROM {tiny}\nLABEL test={name} nonce={secrets.token_hex(8)} {label}\n"
    image_id = buildkit.build(engine, text, arguments={}, watch=quiet).image_id
    for tag in tags:
        engine.tag(image_id, tag)
    return image_id


def test_the_proof_of_an_image_goes_with_it(engine: Engine, tiny: str, apart: str, tmp_path: Path) -> None:
    folder = tmp_path / "build/proofs"
    folder.mkdir(parents=True)
    stays, gone = made(engine, tiny, apart, f"vime:proved{apart}"), f"sha256:{secrets.token_hex(32)}"
    for image_id in (stays, gone):
        (folder / f"{image_id.removeprefix('sha256:')}.json").write_text("{}")
    told = [one.what for one in cleaning.clean(engine, tmp_path, images=False, caches=False) if "proof" in one.what]
    assert told == [f"the proof of {gone[:19]}"]
    assert [path.stem for path in folder.iterdir()] == [stays.removeprefix("sha256:")]


def removed(engine: Engine, *, images: bool = False, caches: bool = False) -> set[str]:
    return {gone.what for gone in cleaning.clean(engine, NOWHERE, images=images, caches=caches) if not gone.kept}


def test_rehearsals_and_images_without_a_tag_go_and_finished_images_stay(engine: Engine, tiny: str, apart: str) -> None:
    ours = f"vime-image-{apart}.image=x"
    rehearsal, finished = f"vime:x{apart}-rehearsal", f"vime:x{apart}"
    made(engine, tiny, apart, rehearsal, label=ours)
    made(engine, tiny, apart, finished, label=ours)
    untagged = made(engine, tiny, apart, label=ours)
    debug = made(engine, tiny, apart, label=f"vime-image-{apart}.debug=STEP")
    stand_in = made(engine, tiny, apart, f"standin:{apart}", label=f"{OWNER}.{apart}=vime-images")
    stranger = made(engine, tiny, apart, f"vime:{apart}-rehearsal", label="somebody=else")
    assert removed(engine) == {f"image {name}" for name in (rehearsal, untagged, debug, f"standin:{apart}")}
    assert all(engine.image_id(gone) is None for gone in (rehearsal, untagged, debug, stand_in))
    assert engine.image_id(finished)
    assert engine.image_id(stranger)
    assert removed(engine, images=True) == {f"image {finished}"}
    assert engine.image_id(stranger)
    assert removed(engine, images=True) == set()


def test_a_container_goes_unless_its_process_may_still_live(engine: Engine, tiny: str, apart: str) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    here = socket.gethostname()
    clients = {
        "ended": f"{here} {ended.pid}",
        "living": f"{here} 1",
        "elsewhere": f"elsewhere.{here} {ended.pid}",
        "unnamed": "",
    }
    names = {}
    try:
        for which, client in clients.items():
            labels = {f"{OWNER}.{apart}": "x", CLIENT: client}
            names[which] = engine.api.create_container(
                tiny, ["sleep", "60"], labels=labels, name=f"{which}-{apart}", entrypoint=[]
            )["Id"]
            engine.api.start(names[which])
        stranger = engine.api.create_container(tiny, ["true"], name=f"stranger-{apart}")["Id"]
        names["stranger"] = stranger
        assert removed(engine) == {f"container ended-{apart}"}
        kept = {gone.what: gone.kept for gone in cleaning.clean(engine, NOWHERE, images=False, caches=False)}
        assert kept[f"container living-{apart}"] == f"in use by process 1 on {here}"
        for which in ("living", "elsewhere"):
            engine.api.kill(names[which])
            engine.api.wait(names[which])
        assert removed(engine) == {f"container living-{apart}", f"container elsewhere-{apart}"}
        assert engine.api.inspect_container(stranger)
    finally:
        for container in names.values():
            with contextlib.suppress(Exception):
                engine.api.remove_container(container, force=True)


def test_what_a_killed_process_has_left_goes_at_the_next_start_and_nobody_else_s(
    engine: Engine, tiny: str, apart: str
) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    here, _, namespace, began = client.this().split(" ")
    clients = {
        "ended": f"{here} {ended.pid} {namespace} {began}",
        "before": f"{here} {ended.pid}",
        "again": f"{here} 1 {namespace} {began}",
        "living": client.this(),
        "elsewhere": f"elsewhere.{here} {ended.pid} {namespace} {began}",
        "unseen": f"{here} {ended.pid} pid:[1] {began}",
        "unnamed": "",
        "nonsense": f"{here} x y z",
    }
    made_ = []
    try:
        for which, process in clients.items():
            for begun in (True, False):
                labels = {f"{OWNER}.{apart}": "x", CLIENT: process}
                name = f"{which}-{'begun' if begun else 'made'}-{apart}"
                made_.append(name)
                engine.api.create_container(tiny, ["sleep", "60"], labels=labels, name=name, entrypoint=[])
                if begun:
                    engine.api.start(name)
        gone = {f"{which}-{how}-{apart}" for which in ("ended", "before", "again") for how in ("begun", "made")}
        assert set(cleaning.after_killed(engine)) == gone
        assert {name for name in made_ if there(engine, name)} == set(made_) - gone
        assert f"container living-made-{apart}" not in removed(engine), "it is about to begin"
    finally:
        for name in made_:
            with contextlib.suppress(Exception):
                engine.api.remove_container(name, force=True)


def there(engine: Engine, name: str) -> bool:
    return bool(engine.api.containers(all=True, filters={"name": name}))


def test_the_command_after_one_that_was_killed_removes_what_that_has_left(engine: Engine, tiny: str) -> None:
    program = (
        "import sys; from builder import front\n"
        "with front.engine().container(sys.argv[1], ['sleep', '600'], files={'/given/a': b''}): print(flush=True), input()"
    )
    before = volumes(engine)
    with subprocess.Popen(
        [sys.executable, "-c", program, tiny], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        process.kill()
    left = [found for found in engine.api.containers(all=True) if f" {process.pid} " in found["Labels"].get(CLIENT, "")]
    assert len(left) == 2, "one that runs, and the one that has its volumes"
    done = subprocess.run(
        [sys.executable, "-m", "builder", "engine"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for found in left:
        assert f"removed container {found['Names'][0][1:]}: its process was killed\n" in done.stderr
        assert not there(engine, found["Names"][0][1:])
    assert volumes(engine) == before


def volumes(engine: Engine) -> set[str]:
    return {volume["Name"] for volume in engine.api.volumes()["Volumes"] or ()}


def test_our_cache_mounts_go_only_when_told_and_strangers_stay(engine: Engine, tiny: str, apart: str) -> None:
    def count(name: str) -> str:
        text = (
            f"FROM {tiny}\nRUN --mount=type=cache,id={name},target=/c <<'COUNT'\n"
            f": {secrets.token_hex(8)}\ntouch /c/$RANDOM$RANDOM; set -- /c/*; echo files: $#\nCOUNT\n"
        )
        told: list[str] = []
        buildkit.build(engine, text, arguments={}, watch=lambda event: told.append(event.text))
        return next(line for line in told if line.startswith("files: "))

    ours, strangers = f"{CACHE}{apart}-pip", f"somebody-{apart}"
    for name in (ours, strangers):
        count(name)
    assert removed(engine) == set()
    assert [count(ours), count(strangers)] == ["files: 2", "files: 2"]
    assert removed(engine, caches=True) == {f"cache mount {ours}"}
    assert [count(ours), count(strangers)] == ["files: 1", "files: 3"]


def test_an_image_that_somebody_uses_stays_and_says_so(engine: Engine, tiny: str, apart: str) -> None:
    tag = f"vime:x{apart}-rehearsal"
    made(engine, tiny, apart, tag, label=f"vime-image-{apart}.image=x")
    user = engine.api.create_container(tag, ["true"], name=f"user-{apart}")["Id"]
    try:
        (gone,) = [gone for gone in cleaning.clean(engine, NOWHERE, images=False, caches=False) if tag in gone.what]
        assert "container" in gone.kept
        assert engine.image_id(tag)
    finally:
        engine.api.remove_container(user)
