"""An opt-in part: it needs a package that is neither in Megatron-LM nor in the image."""


def bridge(path):
    from megatron.bridge import AutoBridge

    return AutoBridge.from_hf_pretrained(path)
