"""scripts/ab-weight-sync: arguments, dry run, trees and judgement. What it starts was never run on a GPU."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from manifests import ROOT

from builder import patches

SCRIPT = ROOT / "scripts/ab-weight-sync"
PATCH = ROOT / "images/patches/vime/engine-mask.patch"
FILE = "vime/backends/vllm_utils/vllm_engine.py"
NEEDED = ["--model", "model", "--reference", "reference", "--prompts", "prompts.jsonl"]


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *words]
    variables = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("ab_weight_sync", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """vime as it is in the image, patched; and whatever else the script asks for."""
    vime = tmp_path / "vime"
    shutil.copytree(ROOT / "standins/sources/vime", vime)
    assert patches.judge(vime, PATCH).kind == "applies"
    if "_engine_mask" not in (vime / FILE).read_text():
        subprocess.run(
            ["git", "apply", str(PATCH)],
            cwd=vime,
            check=True,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)},
        )
    with (vime / FILE).open("a") as file:  # what the stand-in's class has no need for
        file.write("\n    def _make_request(self, endpoint, payload=None):\n        raise NotImplementedError\n")
    (vime / "scripts/models").mkdir(parents=True)
    (vime / "scripts/models/qwen2.5-0.5B.sh").write_text('MODEL_ARGS=(\n  --swiglu\n  --normalization "RMSNorm"\n)\n')
    for name in ("model", "reference", "megatron"):
        (tmp_path / name).mkdir()
    (tmp_path / "prompts.jsonl").touch()
    return tmp_path


def asked(script: ModuleType, image: Path, *more: str) -> Any:
    words = ["--model", "model", "--reference", "reference", "--prompts", "prompts.jsonl", "--output", "out"]
    words = [str(image / word) if not word.startswith("--") else word for word in words]
    return script.arguments([*words, "--vime", str(image / "vime"), "--megatron", str(image / "megatron"), *more])


# Arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: --model, --reference, --prompts, --output"),
        ([*NEEDED, "--output", "new", "--gpus", "1"], "with one GPU every ordinal is 0"),
        ([*NEEDED, "--output", "new", "--gpus", "four"], "invalid int value: 'four'"),
        ([*NEEDED, "--output", "new", "--time-limit", "0"], "--time-limit: a positive number of seconds"),
        ([*NEEDED, "--output", "."], "is there already"),
        ([*NEEDED, "--output", "new", "--model-size", "7B"], "unrecognized arguments: --model-size 7B"),
        ([*NEEDED, "--output", "new", "extra"], "unrecognized arguments: extra"),
        ([*NEEDED, "--output", "new", "--gpus", "-4"], "with one GPU every ordinal is 0"),
        ([*NEEDED, "--output", "new", "--time-limit", "1e3"], "invalid int value: '1e3'"),
        ([*NEEDED, "--output"], "argument --output: expected one argument"),
        ([*NEEDED, "--output", ""], "argument --output: an empty path"),
        ([*NEEDED, "--output", "o" * 300, "--gpus", "1"], "with one GPU"),
        ([*NEEDED, "--output", "vime/new", "--vime", "vime"], "is in the tree that is copied there"),
    ],
)
def test_wrong_arguments_are_said_and_end_with_2(tmp_path: Path, words: list[str], message: str) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_says_that_it_was_not_run_on_hardware(tmp_path: Path) -> None:
    assert "NOT RUN ON HARDWARE" in run(tmp_path, "--help").stdout


def test_without_a_gpu_it_could_not_run_and_leaves_nothing(image: Path) -> None:
    words = ["--output", "out", "--vime", "vime", "--megatron", "megatron"]
    done = run(image, *NEEDED, *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(("could not run: no /dev/kfd", "could not run: no program `ray`"))
    assert not (image / "out").exists()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, *NEEDED, "--output", "out")
    said = f"could not run: no folder {tmp_path / 'model'}\n    hint: --model is for another\n"
    assert (done.returncode, done.stderr) == (3, said)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model", "no folder {image}/model\n    hint: --model is for another"),
        ("prompts.jsonl", "no file {image}/prompts.jsonl\n    hint: --prompts is for another"),
        (
            "vime/scripts/models/qwen2.5-0.5B.sh",
            "no file {image}/vime/scripts/models/qwen2.5-0.5B.sh\n    hint: --vime is for another tree",
        ),
    ],
)
def test_what_is_of_another_kind_is_named_before_anything_is_copied(image: Path, name: str, message: str) -> None:
    if (image / name).is_dir():
        (image / name).rmdir()
        (image / name).touch()
    else:
        (image / name).unlink()
        (image / name).mkdir()
    done = run(image, *NEEDED, "--output", "out", "--vime", "vime", "--megatron", "megatron")
    assert (done.returncode, done.stderr) == (3, f"could not run: {message.format(image=image)}\n")
    assert not (image / "out").exists()


def test_a_name_that_no_file_can_have_could_not_run(tmp_path: Path) -> None:
    done = run(tmp_path, "--model", "a" * 300, *NEEDED[2:], "--output", "out")
    assert (done.returncode, done.stderr[:14]) == (3, "could not run:")
    assert "File name too long\n    hint: " in done.stderr
    assert "Errno" not in done.stderr


def test_a_script_of_the_model_without_its_words_is_named(script: ModuleType, image: Path) -> None:
    model = image / "vime" / script.MODEL
    for text, why in (("MODEL_ARGS=()\n", "it sets none"), ("return 3\n", ""), ("(\n", "syntax error")):
        model.write_text(text)
        with pytest.raises(
            script.CouldNotRunError, match=rf"gives no MODEL_ARGS: (?s:.*){why}(?s:.*)\n    hint: --vime"
        ):
            script.model_words(image / "vime")


# The dry run


def test_a_dry_run_prints_both_starts_and_does_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, *NEEDED, "--output", "out", "--gpus", "8", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(tmp_path.iterdir())
    assert done.stdout.startswith("not run on hardware; ")
    for words in (
        "without: a copy of /opt/vime",
        "with: a copy of /opt/vime",
        "--num-gpus 8",
        "HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7",
    ):
        assert words in done.stdout
    assert done.stdout.count("python3 train.py") == 2
    assert done.stdout.count("--actor-num-gpus-per-node 8 --num-gpus-per-node 8 --colocate") == 2


def test_whoever_has_read_enough_of_a_dry_run_is_told_nothing(tmp_path: Path) -> None:
    words = [*NEEDED, "--output", "out", "--gpus", "1000", "--dry-run"]
    asked = f"{shlex.join([sys.executable, str(SCRIPT), *words])} | head -n 1"
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_the_two_starts_differ_in_their_trees_alone(script: ModuleType, image: Path) -> None:
    wanted = asked(script, image)
    without, patched = (json.dumps(script.environment(wanted, arm)) for arm in script.ARMS)
    assert without.replace("/without/", "/with/") == patched


# Trees


def test_one_tree_has_the_patch_and_the_other_is_as_before(script: ModuleType, image: Path) -> None:
    wanted = asked(script, image)
    patched = script.tree(wanted, "with")
    without = script.tree(wanted, "without")
    original = (ROOT / "standins/sources/vime" / FILE).read_text()
    request = "\n    def _make_request(self, endpoint, payload=None):\n        raise NotImplementedError\n"
    watch = script.WATCH.read_text()
    assert (without / FILE).read_text() == f"{original}{request}\n\n{watch}"
    assert "def _engine_mask(" in (patched / FILE).read_text()
    assert watch not in (image / "vime" / FILE).read_text(), "the image's own tree stays"


def test_a_tree_without_the_patch_is_refused(script: ModuleType, image: Path) -> None:
    shutil.rmtree(image / "vime")
    shutil.copytree(ROOT / "standins/sources/vime", image / "vime")
    with pytest.raises(script.CouldNotRunError, match="does not have the patch"):
        script.tree(asked(script, image), "with")


def test_every_request_of_an_engine_is_written_down(script: ModuleType, tmp_path: Path) -> None:
    engine = "class VLLMEngine:\n    rank = 3\n    def _make_request(self, endpoint, payload=None):\n        return 1 // payload\n"
    use = "engine = VLLMEngine()\nassert engine._make_request('update_weights', 1) == 1\ntry:\n    engine._make_request('update_weights', 0)\nexcept ZeroDivisionError:\n    pass\nelse:\n    raise SystemExit(1)\n"
    log = tmp_path / "log"
    subprocess.run(
        [sys.executable, "-c", engine + script.WATCH.read_text() + use],
        env={"AB_WEIGHT_SYNC_LOG": str(log)},
        check=True,
    )
    one, other = map(json.loads, log.read_text().splitlines())
    assert (one["rank"], one["endpoint"], one["error"]) == (3, "update_weights", None)
    assert other["error"].startswith("ZeroDivisionError")


# Judgement


def line(rank: int, endpoint: str, error: str | None = None) -> str:
    return json.dumps({"rank": rank, "endpoint": endpoint, "error": error}) + "\n"


def test_an_arm_is_synced_when_every_engine_has_finished(script: ModuleType) -> None:
    lines = [line(rank, "finish_weight_update") for rank in range(4)]
    assert script.outcome(lines, 4)[0] == "synced"
    assert script.outcome(lines[:3], 4) == ("not reached", "3 of 4 engines have answered finish_weight_update")
    assert script.outcome([*lines[:3], lines[3][:-5]], 4)[0] == "not reached", "half a line says nothing yet"


def test_an_arm_has_failed_with_the_first_request_that_did(script: ModuleType) -> None:
    lines = [line(0, "finish_weight_update"), line(1, "update_weights", "HTTPError: 500 hipErrorInvalidValue")]
    assert script.outcome(lines, 2) == ("failed", "engine 1, update_weights: HTTPError: 500 hipErrorInvalidValue")


@pytest.mark.parametrize(
    ("without", "patched", "code", "words"),
    [
        ("failed", "synced", 0, "fails without the patch and works with it"),
        ("synced", "synced", 1, "works without the patch too"),
        ("failed", "failed", 1, "fails with the patch"),
        ("synced", "failed", 1, "fails with the patch"),
        ("not reached", "synced", 1, "was not reached"),
        ("failed", "not reached", 1, "was not reached"),
    ],
)
def test_the_verdict_of_two_arms(script: ModuleType, without: str, patched: str, code: int, words: str) -> None:
    found = script.verdict({"without": (without, ""), "with": (patched, "")})
    assert found[0] == code
    assert words in found[1]


# Whole starts, with programs that stand in for ray and for the training

LOADED = f"""
import importlib.machinery as machinery, importlib.util as util, sys
spec = util.spec_from_loader('ab', machinery.SourceFileLoader('ab', {str(SCRIPT)!r}))
script = util.module_from_spec(spec)
spec.loader.exec_module(script)
"""
WORDS = [*NEEDED, "--output", "out", "--vime", "vime", "--megatron", "megatron", "--gpus", "2", "--time-limit", "30"]


def start(image: Path, use: str, train: str) -> subprocess.CompletedProcess[str]:
    """A program that uses the script, where `python3 train.py` is those lines of a shell."""
    programs = image / "bin"
    programs.mkdir()
    (programs / "ray").write_text("#!/bin/sh\nsleep 300 &\nexec sleep 300\n")
    (programs / "python3").write_text(f"#!/bin/sh\n{train}\nsleep 300 &\nexec sleep 300\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOADED + use, *WORDS],
        cwd=image,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def requests(*lines: str) -> str:
    return f"cat >> \"$AB_WEIGHT_SYNC_LOG\" <<'EOT'\n{''.join(lines)}EOT\n"


SYNCED = requests(line(0, "finish_weight_update"), line(1, "finish_weight_update"))


def test_a_start_ends_with_its_first_sync_and_leaves_no_process(image: Path) -> None:
    use = (
        "script.ctypes.CDLL(None).prctl(script.SUBREAPER, 1, 0, 0, 0)\n"
        "print(script.run(script.arguments(sys.argv[1:]), 'with'), script.descendants())\n"
    )
    done = start(image, use, f'echo "$@" > "$PWD/../words"\n{SYNCED}')
    assert (done.returncode, done.stdout) == (0, "('synced', '2 engines') []\n")
    passed = (image / "out/with/words").read_text()
    assert "--swiglu --normalization RMSNorm" in passed
    assert f"--hf-checkpoint {image / 'model'}" in passed


def test_a_host_where_only_the_patch_helps_is_told_apart(image: Path) -> None:
    """Here the training itself looks into its tree for the patch; the one thing left out is the look for a GPU."""
    failed = requests(line(1, "update_weights", "HTTPError: 500 hipErrorInvalidValue"))
    train = f"if grep -q 'def _engine_mask' {FILE}; then\n{SYNCED}else\n{failed}fi"
    use = "script.assert_possible = lambda asked: None\nsys.exit(script.compare(script.arguments(sys.argv[1:])))\n"
    done = start(image, use, train)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "without the patch: failed (engine 1, update_weights: HTTPError: 500 hipErrorInvalidValue)",
        "with the patch: synced (2 engines)",
        "colocate weight sync fails without the patch and works with it",
    ]
    written = json.loads((image / "out/result.json").read_text())
    assert written["arms"]["without"][0] == "failed"
    assert (image / "out/with/log").exists()
