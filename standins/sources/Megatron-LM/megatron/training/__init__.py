from megatron.training.global_vars import get_args, set_args
from megatron.training.initialize import initialize_megatron
from megatron.training.training import pretrain

__all__ = ["get_args", "initialize_megatron", "pretrain", "set_args"]
