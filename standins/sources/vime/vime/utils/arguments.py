from megatron.training.arguments import parse_args as parse_megatron_args


def vllm_field_names():
    """The fields of vLLM's server, wherever its release keeps them."""
    from dataclasses import fields

    from vllm.engine.arg_utils import AsyncEngineArgs

    try:
        from vllm.entrypoints.launchers.cli_args import FrontendArgs
    except ModuleNotFoundError:
        from vllm.entrypoints.openai.cli_args import FrontendArgs
    return {field.name for kind in (AsyncEngineArgs, FrontendArgs) for field in fields(kind)}


def parse_args(arguments=None):
    return parse_megatron_args(arguments)
