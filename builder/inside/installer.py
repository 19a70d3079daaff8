"""Install wheels with uv, by hash, where nothing is left to resolve: seconds of what takes pip a minute."""

import compileall
import csv
import hashlib
import importlib.util
import marshal
import os
import py_compile
import struct
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from pip._vendor.packaging.utils import canonicalize_name

# uv reads no pip.conf: what it needs of pip's variables, under its own names.
VARIABLES = {
    "PIP_CERT": ("SSL_CERT_FILE",), "PIP_CLIENT_CERT": ("SSL_CLIENT_CERT",), "PIP_FIND_LINKS": ("UV_FIND_LINKS",),
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX",), "PIP_NO_INDEX": ("UV_NO_INDEX",), "PIP_RETRIES": ("UV_HTTP_RETRIES",),
    "PIP_PROXY": ("HTTP_PROXY", "HTTPS_PROXY"), "PIP_TIMEOUT": ("UV_HTTP_TIMEOUT",),
    "PIP_DEFAULT_TIMEOUT": ("UV_HTTP_TIMEOUT",), "PIP_TRUSTED_HOST": ("UV_INSECURE_HOST",),
    "PIP_KEYRING_PROVIDER": ("UV_KEYRING_PROVIDER",),
}
LISTS = ("PIP_FIND_LINKS", "PIP_TRUSTED_HOST")  # pip separates them by spaces, uv by commas
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"  # the system's; uv would take its own
TAIL = 12  # lines of its message that are shown


def environment(pip: Mapping[str, str]) -> dict[str, str]:
    """Make uv's environment of pip's."""
    given = {key: ",".join(value.split()) if key in LISTS else value for key, value in pip.items() if key in VARIABLES}
    own = {name: value for key, value in given.items() for name in VARIABLES[key]}
    authority = pip.get("REQUESTS_CA_BUNDLE") or (AUTHORITIES if Path(AUTHORITIES).exists() else "")
    kept = {key: value for key, value in pip.items() if not key.startswith("PIP_")}
    return {**({"SSL_CERT_FILE": authority} if authority else {}), **kept, **own}


class Uv(NamedTuple):
    """The program, pip's environment, and a folder of the step's own."""

    program: Path
    pip: Mapping[str, str]
    scratch: Path

    def call(self, *arguments: str) -> tuple[int, str]:
        """Run uv where nothing can be read by accident: its exit code and all that it says."""
        away = (f"--cache-dir={self.scratch / 'uv-cache'}",) if self.pip.get("PIP_NO_CACHE_DIR") else ()
        command = [str(self.program), *arguments, "--no-config", "--color=never", *away]
        done = subprocess.run(command, cwd="/", env=environment(self.pip), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def put(self, lines: list[str], *options: str) -> tuple[int, str]:
        """Install lines of name, version and hash: the exit code, and the last words.

        By hard links where the cache is on the same file system, else uv copies by itself. Symbolic links would be
        slower than copies: the path of a cache is too long for an inode.
        """
        listing = self.scratch / "uv.txt"
        listing.write_text("\n".join(lines), encoding="utf-8")
        code, said = self.call("pip", "install", f"--python={sys.executable}", "--no-deps", "--no-build",
                               "--require-hashes", "--no-progress", "--link-mode=hardlink",
                               f"--requirement={listing}", *options)
        return code, "\n    ".join(said.splitlines()[-TAIL:])

    def cache(self) -> Path:
        """Find the cache, a mount that no image keeps."""
        folder = Path(self.call("cache", "dir")[1].strip())
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def look(self, lines: list[str]) -> tuple[dict[str, list[str]], str]:
        """Unpack the wheels beside the cache: the files that each would install, and why there are none."""
        with tempfile.TemporaryDirectory(dir=self.cache(), prefix="look-") as aside:
            code, words = self.put(lines, f"--target={aside}")
            infos = [] if code else Path(aside).glob("*.dist-info")
            found = {str(canonicalize_name(info.stem.rpartition("-")[0])): recorded(info) for info in infos}
        return found, words * code

    def install(self, files: dict[str, list[str]]) -> str:
        """Install the wheels that were looked at, a line and the files of each, with their bytecode: why it failed."""
        code, words = self.put(list(files))
        if not code:
            folder, site = self.cache() / "bytecode", sysconfig.get_path("purelib")
            folder.mkdir(exist_ok=True)
            of = (importlib.util.MAGIC_NUMBER.hex(), site)  # a module's code names the path of its source
            kept = [folder / hashlib.sha256("\n".join([*of, line]).encode()).hexdigest() for line in files]
            modules = [[os.path.normpath(f"{site}/{file}") for file in names if file.endswith(".py")]
                       for names in files.values()]
            with ProcessPoolExecutor() as pool:
                list(pool.map(compiled, kept, modules))
        return words * code


def compiled(kept: Path, modules: list[str]) -> None:
    """Write the bytecode of a wheel's modules: what an earlier build kept of the same bytes, or compiled and kept now.

    Not by uv, which would compile all that the base has too. A module for a later Python compiles in neither.
    """
    paths = {Path(module): Path(importlib.util.cache_from_source(module)) for module in modules}
    try:
        codes = marshal.loads(kept.read_bytes())  # noqa: S302 - trusted as the unpacked wheels beside it are
    except (OSError, EOFError, ValueError, TypeError):  # none, or a damaged one
        codes = None
    if codes:
        for module, path in paths.items():
            if code := codes.get(str(module)):
                stamp = [int(number) & 0xFFFFFFFF for number in (module.stat().st_mtime, module.stat().st_size)]
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(code[:8] + struct.pack("<2I", *stamp) + code[16:])  # valid for this very file
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that are not ours
        for module in paths:
            compileall.compile_file(module, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    codes = {str(module): path.read_bytes() for module, path in paths.items() if path.exists()}
    with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
        marshal.dump(codes, file)
    Path(file.name).replace(kept)  # whole or not at all, also beside another build


def recorded(info: Path) -> list[str]:
    with (info / "RECORD").open(encoding="utf-8", newline="") as file:
        return [row[0] for row in csv.reader(file)]
