"""Builds the stand-in torch_memory_saver for HIP; needs no torch."""

import os
import shutil
from pathlib import Path

from setuptools import Extension, setup

HOOKS = ("preload", "torch")


def rocm_home():
    hipcc = shutil.which("hipcc")
    if hipcc is None:
        raise SystemExit("torch_memory_saver: no hipcc on PATH")
    home = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH")
    return Path(home) if home else Path(hipcc).resolve().parents[1]


def extension(hook):
    home = rocm_home()
    library = home / "lib" / "libamdhip64.so"
    if not library.exists():
        raise SystemExit(f"torch_memory_saver: no {library}")
    name = f"torch_memory_saver_hook_mode_{hook}"
    return Extension(
        name,
        sources=["csrc/hook.cpp"],
        include_dirs=[str(home / "include")],
        library_dirs=[str(home / "lib")],
        libraries=["amdhip64", "dl"],
        define_macros=[
            ("MODULE", name),
            ("Py_LIMITED_API", "0x03090000"),
            ("USE_ROCM", "1"),
            ("__HIP_PLATFORM_AMD__", "1"),
        ],
        extra_compile_args=["-std=c++17"],
        py_limited_api=True,
    )


setup(
    name="torch_memory_saver",
    version="0.0.9",
    packages=["torch_memory_saver"],
    python_requires=">=3.9",
    ext_modules=[extension(hook) for hook in HOOKS],
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
)
