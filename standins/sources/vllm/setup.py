"""Builds the stand-in vLLM for ROCm: four modules, each with a kernel for every target."""

from pathlib import Path

import torch
from packaging.version import Version
from setuptools import Extension, find_packages, setup
from setuptools_scm import get_version
from torch.utils.cpp_extension import BuildExtension

HERE = Path(__file__).resolve().parent
MODULES = ("_C", "_C_stable_libtorch", "_moe_C_stable_libtorch", "_rocm_C")


def version():
    """The version with its ROCm label; `vllm/_version.py` gets it without one."""
    plain = get_version(root=HERE)
    (HERE / "vllm" / "_version.py").write_text(f'__version__ = version = "{plain}"\n')
    label = "rocm" + torch.version.hip.replace(".", "")[:3]
    return f"{plain}{'.' if Version(plain).local else '+'}{label}"


def requirements(name="rocm.txt"):
    """The lines of a requirement file, with those of the files that it includes."""
    for line in (HERE / "requirements" / name).read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r "):
            yield from requirements(text[3:])
        elif text:
            yield text


def extension(module):
    source = f"csrc/{module}.hip"
    return Extension(f"vllm.{module}", sources=[source], depends=["csrc/module.h"], py_limited_api=True)


setup(
    name="vllm",
    version=version(),
    packages=find_packages(include=["vllm", "vllm.*"]),
    python_requires=">=3.10",
    install_requires=list(requirements()),
    ext_modules=[extension(module) for module in MODULES],
    cmdclass={"build_ext": BuildExtension},
)
