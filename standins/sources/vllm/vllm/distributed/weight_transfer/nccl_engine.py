from dataclasses import dataclass

from vllm.distributed.weight_transfer.base import TrainerInitInfo


@dataclass
class NCCLTrainerInitInfo(TrainerInitInfo):
    master_port: int = 0
