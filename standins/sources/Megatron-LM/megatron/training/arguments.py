import argparse
from dataclasses import fields

from megatron.core.transformer.transformer_config import TransformerConfig


def parse_args(arguments=None):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for field in fields(TransformerConfig):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    return parser.parse_args(arguments)
