from megatron.core.distributed.distributed_data_parallel import DistributedDataParallel
from megatron.core.transformer.transformer_config import TransformerConfig


def wrap(module, config: TransformerConfig):
    return DistributedDataParallel(module, overlap=config.num_layers > 1)


def samples(tokens, length):
    try:
        from megatron.core.datasets import helpers_cpp
    except ImportError:
        return (tokens - 1) // length
    return helpers_cpp.samples(tokens, length)
