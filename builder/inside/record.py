"""Write down where a source came from: /opt/vime-image/sources/<name>.json, which the checks name."""

import argparse
import hashlib
import json
import subprocess
from pathlib import Path


def git(checkout: str, *arguments: str) -> bytes:
    """What git prints about a checkout."""
    return subprocess.run(["git", "-C", checkout, *arguments], check=True, stdout=subprocess.PIPE).stdout


def main() -> None:
    """Record one source, with the digests of its patches and of what they changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    parser.add_argument("--kept", action="store_true", help="the checkout stays in the image")
    parser.add_argument("--tag")
    for name in ("name", "repository", "checkout", "distribution"):
        parser.add_argument(name)
    parser.add_argument("patches", nargs="*", type=Path)
    asked = parser.parse_args()
    record = {
        "name": asked.name,
        "repository": asked.repository,
        "tag": asked.tag,
        "commit": git(asked.checkout, "rev-parse", "HEAD").decode().strip(),
        "checkout": asked.checkout,
        "distribution": asked.distribution,
        "kept": asked.kept,
        "patches": [
            {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in asked.patches
        ],
        "diff_sha256": hashlib.sha256(git(asked.checkout, "diff", "HEAD")).hexdigest(),
    }
    target = asked.root / "sources" / f"{asked.name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
