import os

from megatron.training.global_vars import set_args

# Attention kernels that Megatron chooses itself: a variable has to be absent or to agree.
EXPECTED = {"NVTE_FLASH_ATTN": "1", "NVTE_FUSED_ATTN": "1", "NVTE_UNFUSED_ATTN": "1"}


def check_attention_backend():
    for name, expected in EXPECTED.items():
        found = os.environ.get(name, expected)
        assert found == expected, f"{name} set to {found}, but expected {expected}"


def initialize_megatron(args):
    check_attention_backend()
    set_args(args)
