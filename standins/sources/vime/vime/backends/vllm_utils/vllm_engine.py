from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm.utils.system_utils import kill_process_tree

if TYPE_CHECKING:
    from vllm.entrypoints.types_for_checkers_only import ServerArguments


def _run_vllm_server(arguments: ServerArguments):
    import argparse

    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args

    parsed = make_arg_parser(argparse.ArgumentParser()).parse_args(arguments)
    validate_parsed_serve_args(parsed)
    return parsed


def _vllm_server_field_names():
    from dataclasses import fields

    from vllm.entrypoints.launchers.cli_args import FrontendArgs

    return {field.name for field in fields(FrontendArgs)}


def _build_subprocess_env(visible_devices):
    masks = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), visible_devices)
    return {**os.environ, **masks, "VLLM_SERVER_DEV_MODE": "1"}


class VLLMEngine:
    def __init__(self, arguments):
        self.arguments = arguments
        self.pid = None

    def start(self):
        return _run_vllm_server(self.arguments)

    def stop(self):
        if self.pid:
            kill_process_tree(self.pid)
