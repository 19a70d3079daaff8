"""Builds the stand-in vLLM for ROCm: four modules, each with a kernel for every target."""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import torch
from packaging.version import Version
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools_scm import get_version

HERE = Path(__file__).resolve().parent
MODULES = ("_C", "_C_stable_libtorch", "_moe_C_stable_libtorch", "_rocm_C")
BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
NO_CODE = b"stand-in code object, not compiled"


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


def hipcc():
    home = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH")
    return str(Path(home, "bin", "hipcc")) if home else shutil.which("hipcc")


def known_to_the_compiler(target, folder):
    """Whether hipcc compiles for `target`; any fault but an unknown target stops the build."""
    probe = folder / "probe.hip"
    probe.write_text("__attribute__((global)) void probe() {}\n")
    command = [hipcc(), f"--offload-arch={target}", "--cuda-device-only", "-nogpulib", "-nogpuinc"]
    command += ["-fsyntax-only", str(probe)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode and not re.search("(invalid target ID|unsupported HIP gpu arch)", answer.stderr):
        raise SystemExit(f"{' '.join(command)} failed:\n{answer.stderr}")
    return answer.returncode == 0


def standin_bundle(targets):
    """Assembler text: an offload bundle with an entry for each target and no code in it."""
    names = [f"hipv4-amdgcn-amd-amdhsa--{target}".encode() for target in targets]
    offset = len(BUNDLE_MAGIC) + 8 + sum(24 + len(name) for name in names)
    text = BUNDLE_MAGIC + len(names).to_bytes(8, "little")
    for name in names:
        for number in (offset, len(NO_CODE), len(name)):
            text += number.to_bytes(8, "little")
        text += name
    numbers = ",".join(str(byte) for byte in text + NO_CODE)
    # Without the note, a library asks for a stack that can be executed, and nothing loads it.
    note = '.section .note.GNU-stack,"",@progbits\n'
    return f'.section .hip_fatbin,"a",@progbits\n.p2align 12\n.byte {numbers}\n{note}'


class BuildWithNinja(build_ext):
    """One ninja run for all modules, so that MAX_JOBS and ccache are honoured."""

    def run(self):
        targets = os.environ["PYTORCH_ROCM_ARCH"].replace(",", ";").split(";")
        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        known = [target for target in targets if known_to_the_compiler(target, folder)]
        unknown = [target for target in targets if target not in known]
        if unknown:
            print(f"vllm: stand-in code objects for {', '.join(unknown)}", flush=True)
            (folder / "standin.s").write_text(standin_bundle(unknown))
        (folder / "build.ninja").write_text(self.ninja_file(known, unknown))
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count())
        subprocess.run(["ninja", "-v", "-j", jobs], cwd=folder, check=True)
        for extension in self.extensions:
            name = extension.name.rpartition(".")[2] + ".abi3.so"
            place = Path(self.build_lib, "vllm", name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / name, place)

    def ninja_file(self, known, unknown):
        """One object and one library a module; without a known target the kernel is left out."""
        launcher = "ccache " if shutil.which("ccache") else ""
        arches = " ".join(f"--offload-arch={target}" for target in known)
        compiler = f"{launcher}{hipcc()} {arches}" if known else f"{launcher}g++ -x c++ -DNO_KERNEL"
        linker = f"{hipcc()} --hip-link {arches}" if known else "g++"
        lines = [
            "rule compile",
            f"  command = {compiler} -O2 -fPIC -std=c++17 -DPy_LIMITED_API=0x030a0000"
            f" -I{sysconfig.get_path('include')} -DMODULE=$module -c $in -o $out",
            "rule assemble",
            "  command = gcc -c $in -o $out",
            "rule link",
            f"  command = {linker} -shared $in -o $out",
        ]
        standin = "standin.o" if unknown else ""
        if unknown:
            lines.append("build standin.o: assemble standin.s")
        for module in MODULES:
            lines.append(f"build {module}.o: compile {HERE}/csrc/{module}.hip | {HERE}/csrc/module.h")
            lines.append(f"  module = {module}")
            lines.append(f"build {module}.abi3.so: link {module}.o {standin}")
        return "\n".join(lines) + "\n"


setup(
    name="vllm",
    version=version(),
    packages=find_packages(include=["vllm", "vllm.*"]),
    python_requires=">=3.10",
    install_requires=list(requirements()),
    ext_modules=[Extension(f"vllm.{module}", sources=[]) for module in MODULES],
    cmdclass={"build_ext": BuildWithNinja},
)
