from dataclasses import dataclass


@dataclass
class EngineArgs:
    model: str = ""
    tensor_parallel_size: int = 1


@dataclass
class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
