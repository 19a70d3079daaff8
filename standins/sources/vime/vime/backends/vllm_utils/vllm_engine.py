"""Stand-in for the launcher of vime's engines.

`_build_subprocess_env` begins at the line where the pinned vime has it: a patch of it finds its place without offset.
Names and shapes are those of the pinned file, the rest is not.

"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

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


class VLLMEngine:
    def __init__(self, arguments):
        self.arguments = arguments
        self.pid = None

    def start(self):
        return _run_vllm_server(self.arguments)

    def stop(self):
        if self.pid:
            kill_process_tree(self.pid)


def first_gpu(args, rank):
    return rank * args.gpus_per_engine % args.num_gpus_per_node


def launch_server_process(server_args_dict):
    import multiprocessing

    p = multiprocessing.Process(target=_run_vllm_server, args=(_build_subprocess_env(server_args_dict),))
    p.start()
    return p


def _build_subprocess_env(server_args_dict: dict[str, Any]) -> dict[str, str]:
    args = server_args_dict["_args"]
    env = os.environ.copy()
    env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    env.pop("PYTORCH_ALLOC_CONF", None)
    assert args is not None
    masks = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), server_args_dict["_visible_devices"])
    return {**env, **masks, "VLLM_SERVER_DEV_MODE": "1"}
