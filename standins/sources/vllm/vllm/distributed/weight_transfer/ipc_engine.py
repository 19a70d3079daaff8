from dataclasses import dataclass

from vllm.distributed.weight_transfer.base import TrainerInitInfo


@dataclass
class IPCTrainerInitInfo(TrainerInitInfo):
    packed: bool = False
    packed_buffer_size_bytes: int = 0
