"""Install wheels with uv, by hash, where nothing is left to resolve: seconds of what takes pip a minute."""

import csv
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

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

    def install(self, lines: list[str]) -> str:
        """Install lines of name, version and hash: why it went wrong, if it did."""
        listing = self.scratch / "uv.txt"
        listing.write_text("\n".join(lines), encoding="utf-8")
        cache = [f"--cache-dir={self.scratch / 'uv-cache'}"] * bool(self.pip.get("PIP_NO_CACHE_DIR"))
        command = [str(self.program), "pip", "install", f"--python={sys.executable}", "--no-config", "--no-deps",
                   "--no-build", "--require-hashes", "--no-progress", "--color=never", f"--requirement={listing}",
                   "--link-mode=copy", *cache]  # copies: its cache is another file system
        done = subprocess.run(command, cwd="/", env=environment(self.pip), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return "\n    ".join(done.stdout.splitlines()[-TAIL:]) if done.returncode else ""

    def compile(self, files: list[str]) -> None:
        """Compile modules as pip does, by their places in site-packages.

        Not by uv, which would compile all that the base has too. A module for a later Python compiles in neither.
        """
        listing = self.scratch / "modules.txt"
        modules = [f"{sysconfig.get_path('purelib')}/{file}\n" for file in files if file.endswith(".py")]
        listing.write_text("".join(modules), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "compileall", "-qq", "-j0", "-i", str(listing)], check=False)


def recorded(name: str) -> list[str]:
    """List the files of an installed distribution, by their places in site-packages."""
    site = sysconfig.get_path("purelib")
    text = next(iter(metadata.distributions(name=name))).read_text("RECORD") or ""
    return [os.path.relpath(os.path.normpath(f"{site}/{row[0]}"), site) for row in csv.reader(text.splitlines())]
