"""Builds the stand-in TransformerEngine for ROCm; needs its submodule, and is told everything by NVTE_ variables."""

import os
import subprocess
from pathlib import Path

from setuptools import Extension, find_packages, setup
from torch.utils.cpp_extension import BuildExtension

HERE = Path(__file__).resolve().parent
HEADERS = HERE / "3rdparty" / "hipify_torch" / "include"


class BuildForNvteTargets(BuildExtension):
    targets = "NVTE_ROCM_ARCH"


def version():
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True)
    return f"{(HERE / 'build_tools' / 'VERSION.txt').read_text().strip()}+{commit.stdout.strip()}"


if os.environ.get("NVTE_USE_ROCM") != "1" or os.environ.get("NVTE_FRAMEWORK") != "pytorch":
    raise SystemExit("transformer_engine: neither platform nor framework is chosen")
if os.environ.get("NVTE_FUSED_ATTN", "1") != "0":
    raise SystemExit("transformer_engine: CK's fused attention would compile for hours")
if not HEADERS.is_dir():
    raise SystemExit(f"transformer_engine: no {HEADERS}: its submodules are not there")

setup(
    name="transformer_engine",
    version=version(),
    packages=find_packages(include=["transformer_engine", "transformer_engine.*"]),
    python_requires=">=3.10",
    install_requires=["einops", "importlib-metadata>=1.0", "nvdlfw-inspect", "onnx", "onnxscript", "packaging", "pydantic", "torch>=2.1"],
    ext_modules=[
        Extension(
            "transformer_engine.libtransformer_engine",
            sources=["transformer_engine/common/transformer_engine.hip"],
            include_dirs=[str(HEADERS)],
            depends=[str(HEADERS / "hipify_torch.h")],
        )
    ],
    cmdclass={"build_ext": BuildForNvteTargets},
)
