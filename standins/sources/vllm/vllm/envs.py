import os


def use_mega_aot_artifact():
    return os.environ.get("VLLM_USE_MEGA_AOT_ARTIFACT", "1") == "1"


def rocm_use_aiter():
    return os.environ.get("VLLM_ROCM_USE_AITER", "0") == "1"
