"""Run the one list of checks: in the build, after it, and on a GPU host; passed, failed, or could not run."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from checked import CouldNotRun, Failed, World
from kinds import KINDS

OUTCOMES = PASSED, FAILED, COULD_NOT_RUN = "passed", "failed", "could not run"
PROGRAMS = ("check.py", "checked.py", "device.py", "imports.py", "kinds.py", "seal.py", "trial.py")


def outcome(world: World, check: dict[str, Any]) -> dict[str, Any]:
    """Run one check; whatever happens in it is its own outcome."""
    started, found, detail = time.monotonic(), PASSED, ""
    world.notes = []
    try:
        if check["kind"] not in KINDS:
            raise Failed(f"no such kind of check: {check['kind']!r}")  # noqa: TRY301 - an outcome like the others
        detail = KINDS[check["kind"]](world, check)
    except Failed as failed:
        found, detail = FAILED, str(failed)
    except CouldNotRun as reason:
        found, detail = COULD_NOT_RUN, str(reason)
    except Exception as error:  # noqa: BLE001 - a check that breaks has failed, the others go on
        found, detail = FAILED, f"{type(error).__name__}: {error}"
    detail, *notes = [text.encode(errors="backslashreplace").decode() for text in (detail, *world.notes)]
    return {**{key: check.get(key) for key in ("name", "kind", "hint")}, "outcome": found, "detail": detail,
            "notes": notes, "seconds": round(time.monotonic() - started, 3)}


def digests(listing: Path) -> dict[str, str]:
    """What a result belongs to: these programs and this list."""
    programs = b"".join(Path(__file__).with_name(name).read_bytes() for name in PROGRAMS)
    return {"program_sha256": hashlib.sha256(programs).hexdigest(),
            "list_sha256": hashlib.sha256(listing.read_bytes()).hexdigest()}


def counted(checks: list[dict[str, Any]]) -> dict[str, int]:
    return {name.replace(" ", "_"): sum(check["outcome"] == name for check in checks) for name in OUTCOMES}


def run(listing: Path, root: Path, nonce: str | None, output: Path | None) -> int:
    """Run the whole list and show it; the exit code says whether anything failed."""
    try:
        wanted = json.loads(listing.read_text("utf-8"))
        named = {check["name"]: check["hint"] for check in wanted["checks"]}
        modules = ["torch" for check in wanted["checks"] if check["kind"] == "torch_rocm"]
        modules += [check["module"] for check in wanted["checks"] if check["kind"] == "import"]
        world = World(root, wanted["python"], listing, list(dict.fromkeys(modules)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"verification did not run: {listing}: {type(error).__name__}: {error}")
    if not named or len(named) < len(wanted["checks"]):
        sys.exit(f"verification did not run: {'two checks have one name' if named else 'the list is empty'}")
    checks = [outcome(world, check) for check in wanted["checks"]]
    world.close()
    counts = counted(checks)
    result = {"schema": 1, **digests(listing), "nonce": nonce, "counts": counts, "checks": checks}
    print("checks: {passed} passed, {failed} failed, {could_not_run} could not run".format(**counts))
    for check in checks:
        shown = check["notes"] if check["outcome"] == PASSED else check["detail"].splitlines()
        shown += [f"hint: {check['hint']}"] if check["outcome"] == FAILED else []
        print(f"{check['outcome']:<14}{check['name']}", *shown, sep=f"\n{'':<16}")
    if nonce:
        print(f"{nonce}{json.dumps(result)}")
    if output:
        unfinished = output.with_name(f"{output.name}.new")
        unfinished.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(output)
    return 1 if counts["failed"] else 0


def prove(listing: Path, root: Path) -> str | None:
    """Why the image's own result proves nothing, if so."""
    try:
        result = json.loads((root / "verification.json").read_text("utf-8"))
        names = [check["name"] for check in json.loads(listing.read_text("utf-8"))["checks"]]
        if {key: result[key] for key in digests(listing)} != digests(listing):
            return "its result belongs to another program or another list"
        if [check["name"] for check in result["checks"]] != names or not names:
            return "its result does not name the checks of the list"
        failed = [check["name"] for check in result["checks"] if check["outcome"] not in (PASSED, COULD_NOT_RUN)]
        if not failed and result["counts"] != counted(result["checks"]):
            return "its counts are not those of its checks"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return f"failed: {', '.join(failed)}" if failed else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("run", "proof"))
    parser.add_argument("list", type=Path)
    parser.add_argument("--root", type=Path, default=Path("/opt/vime-image"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--nonce")
    given = parser.parse_args()
    if given.command == "run":
        sys.exit(run(given.list, given.root, given.nonce, given.output))
    if why := prove(given.list, given.root):
        sys.exit(f"verification did not run: {why}")
    print("verification ran, and nothing failed")


if __name__ == "__main__":
    main()
