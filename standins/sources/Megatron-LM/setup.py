import subprocess
import sys

from setuptools import Extension, setup

includes = subprocess.run(
    [sys.executable, "-m", "pybind11", "--includes"], capture_output=True, text=True, check=True
).stdout.split()

setup(
    ext_modules=[
        Extension(
            "megatron.core.datasets.helpers_cpp",
            sources=["megatron/core/datasets/helpers.cpp"],
            language="c++",
            extra_compile_args=["-O2", "-std=c++17", *includes],
            optional=True,
        )
    ]
)
