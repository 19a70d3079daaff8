import argparse
from dataclasses import dataclass


@dataclass
class BaseFrontendArgs:
    host: str = "127.0.0.1"


@dataclass
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000


def make_arg_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--host", default=FrontendArgs.host)
    parser.add_argument("--port", type=int, default=FrontendArgs.port)
    return parser


def validate_parsed_serve_args(args: argparse.Namespace) -> None:
    if not 0 < args.port < 65536:
        raise ValueError(f"port {args.port}")
