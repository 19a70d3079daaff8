from dataclasses import dataclass


@dataclass
class TrainerInitInfo:
    rank: int = 0
