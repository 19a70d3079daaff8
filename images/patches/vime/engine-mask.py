"""Proof of engine-mask.patch, run where vime is installed: the mask that an engine is launched with."""

import sys
from types import SimpleNamespace

import torch.version
from vime.backends.vllm_utils.vllm_engine import _engine_mask

CASES = {  # first GPU, own GPUs, GPUs of the node
    (0, 2, 2): "0,1",
    (1, 1, 2): "1,0",
    (3, 1, 8): "3,0,1,2,4,5,6,7",
    (6, 3, 8): "6,7,0,1,2,3,4,5",
}
for (base, own, node), wanted in CASES.items():
    asked = ",".join(str(base + number) for number in range(own))
    found = _engine_mask(asked, SimpleNamespace(num_gpus_per_node=node))
    if found != (wanted if torch.version.hip else asked):
        sys.exit(f"of {node} GPUs an engine with {own} from {base} on sees {found}, not {wanted}")
