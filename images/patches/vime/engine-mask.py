"""Proof of engine-mask.patch, run where vime is installed: the environment that an engine is launched with."""

import sys
from types import SimpleNamespace

import torch.version
from vime.backends.vllm_utils.vllm_engine import _build_subprocess_env

CASES = {  # first GPU, own GPUs, GPUs of the node
    (0, 2, 2): "0,1",
    (1, 1, 2): "1,0",
    (3, 1, 8): "3,0,1,2,4,5,6,7",
    (6, 3, 8): "6,7,0,1,2,3,4,5",
}
for (base, own, node), mask in CASES.items():
    asked = ",".join(str(base + number) for number in range(own))
    made = _build_subprocess_env({"_args": SimpleNamespace(num_gpus_per_node=node), "_visible_devices": asked})
    wanted = mask if torch.version.hip else asked
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if made[name] != wanted:
            sys.exit(f"of {node} GPUs an engine with {own} from {base} on has {name}={made[name]}, not {wanted}")
