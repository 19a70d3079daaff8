from types import SimpleNamespace

from vime.backends.vllm_utils.vllm_engine import _build_subprocess_env


def test_an_engine_is_told_its_devices():
    asked = {"_args": SimpleNamespace(num_gpus_per_node=1), "_visible_devices": "0"}
    assert _build_subprocess_env(asked)["CUDA_VISIBLE_DEVICES"] == "0"
