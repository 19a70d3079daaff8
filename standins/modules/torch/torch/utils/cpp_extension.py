"""A stand-in for torch's builds of extensions: HIP libraries, each with a kernel for every target.

An extension's one source is compiled with MODULE defined as the last part of the extension's name.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools.command.build_ext import build_ext

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
NO_CODE = b"stand-in code object, not compiled"


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


class BuildExtension(build_ext):
    """One ninja run for all extensions, so that MAX_JOBS and ccache are honoured.

    `targets` is the variable that names the GPUs.
    """

    targets = "PYTORCH_ROCM_ARCH"

    def run(self):
        targets = os.environ[self.targets].replace(",", ";").split(";")
        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        known = [target for target in targets if known_to_the_compiler(target, folder)]
        unknown = [target for target in targets if target not in known]
        if unknown:
            print(f"{self.distribution.get_name()}: stand-in code objects for {', '.join(unknown)}", flush=True)
            (folder / "standin.s").write_text(standin_bundle(unknown))
        (folder / "build.ninja").write_text(self.ninja_file(known, unknown))
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count())
        subprocess.run(["ninja", "-v", "-j", jobs], cwd=folder, check=True)
        for extension in self.extensions:
            package, _, name = extension.name.rpartition(".")
            place = Path(self.build_lib, *package.split("."), name + self.suffix(extension))
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / f"{name}.so", place)

    @staticmethod
    def suffix(extension):
        return ".abi3.so" if extension.py_limited_api else ".so"

    def ninja_file(self, known, unknown):
        """One object and one library an extension; without a known target the kernel is left out."""
        launcher = "ccache " if shutil.which("ccache") else ""
        arches = " ".join(f"--offload-arch={target}" for target in known)
        compiler = f"{launcher}{hipcc()} {arches}" if known else f"{launcher}g++ -x c++ -DNO_KERNEL"
        linker = f"{hipcc()} --hip-link {arches}" if known else "g++"
        lines = [
            "rule compile",
            f"  command = {compiler} -O2 -fPIC -std=c++17 -DPy_LIMITED_API=0x030a0000"
            f" -I{sysconfig.get_path('include')} $includes -DMODULE=$module -c $in -o $out",
            "rule assemble",
            "  command = gcc -c $in -o $out",
            "rule link",
            f"  command = {linker} -shared $in -o $out",
        ]
        standin = "standin.o" if unknown else ""
        if unknown:
            lines.append("build standin.o: assemble standin.s")
        for extension in self.extensions:
            module, source = extension.name.rpartition(".")[2], Path(extension.sources[0]).resolve()
            headers = " ".join(str(Path(header).resolve()) for header in extension.depends)
            lines.append(f"build {module}.o: compile {source} | {headers}")
            lines.append(f"  module = {module}")
            lines.append(f"  includes = {' '.join(f'-I{Path(path).resolve()}' for path in extension.include_dirs)}")
            lines.append(f"build {module}.so: link {module}.o {standin}")
        return "\n".join(lines) + "\n"
