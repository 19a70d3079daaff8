import numpy as np
from megatron.core import parallel_state
from megatron.training import initialize_megatron


def init(args):
    initialize_megatron(args)
    parallel_state.initialize_model_parallel()
    assert np.__version__.startswith("1."), "Megatron does not support numpy 2.x"
