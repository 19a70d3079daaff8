from dataclasses import dataclass


@dataclass
class TransformerConfig:
    num_layers: int = 1
    hidden_size: int = 64
    attention_backend: str = "auto"
