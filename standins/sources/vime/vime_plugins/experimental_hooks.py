"""Opt-in hooks, each for another unreleased vLLM: no single one has both modules."""


def install():
    from vllm.experimental.early_hooks import EarlyHook
    from vllm.experimental.late_hooks import LateHook

    return EarlyHook, LateHook
