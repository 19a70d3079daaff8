"""The API window, on small trees of every form that an import and a definition can take."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

INSIDE = Path(__file__).parents[2] / "builder" / "inside"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("imports", INSIDE / "imports.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["imports"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


imports = load()

PROVIDER = {
    "pkg/__init__.py": "from pkg.core import Engine\nVERSION = '1'\n",
    "pkg/core.py": "class Engine: pass\ndef start(): pass\nasync def run(): pass\nA = B = 1\nC: int = 2\nD, (E, *F) = 1, (2,)\n",
    "pkg/conditional.py": "try:\n    import json as fast\nexcept ImportError:\n    fast = None\nif VERSION:\n    def only(): pass\n",
    "pkg/star.py": "from pkg.core import *\n",
    "pkg/again.py": "from .core import start as begin\nfrom . import core\n",
    "pkg/lazy.py": "def __getattr__(name): return name\n",
    "pkg/loop_a.py": "from pkg.loop_b import thing\n",
    "pkg/loop_b.py": "from pkg.loop_a import thing\n",
    "pkg/local.py": "def outer():\n    hidden = 1\n    class Inner: pass\n",
    "pkg/sub/inner.py": "class Deep: pass\n",
    "pkg/native.abi3.so": "",
}


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def window(
    tmp_path: Path,
    consumer: str | dict[str, str],
    provider: dict[str, str] = PROVIDER,
    unused: dict[str, str] | None = None,
) -> Any:
    files = {"app/main.py": consumer} if isinstance(consumer, str) else consumer
    tree(tmp_path / "consumer", files)
    tree(tmp_path / "provider", provider)
    return imports.window([tmp_path / "consumer" / "app"], ["pkg"], [tmp_path / "provider"], unused or {})


FOUND = [
    "import pkg",
    "import pkg.core",
    "from pkg import Engine",
    "from pkg import core",
    "from pkg.core import Engine, start, run, A, B, C, D, E, F",
    "from pkg.conditional import fast, only",
    "from pkg.star import Engine",
    "from pkg.again import begin, core",
    "from pkg.sub import inner",
    "from pkg.sub.inner import Deep",
    "from pkg.core import *",
    "import pkg.core as c\nc.Engine()",
    "import pkg\npkg.core.Engine()",
    "import importlib\nimportlib.import_module('pkg.sub.inner')",
    "from json import nothing_of_ours",
    "from . import relative",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg import Missing",
]

MISSING = {
    "import pkg.gone": "pkg.gone",
    "from pkg import Missing": "pkg.Missing",
    "from pkg.core import Missing": "pkg.core.Missing",
    "from pkg.core import Engine, Missing": "pkg.core.Missing",
    "from pkg.gone import Engine": "pkg.gone.Engine",
    "def f():\n    from pkg import Missing": "pkg.Missing",
    "class K:\n    from pkg import Missing": "pkg.Missing",
    "import pkg.core as c\nc.Missing()": "pkg.core.Missing",
    "import pkg\npkg.core.Missing()": "pkg.core.Missing",
    "import pkg\npkg.gone.Engine()": "pkg.gone.Engine",
    "import importlib\nimportlib.import_module('pkg.gone')": "pkg.gone",
    "from pkg.loop_a import thing": "pkg.loop_a.thing",
    "from pkg.local import hidden": "pkg.local.hidden",
    "from pkg.local import Inner": "pkg.local.Inner",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    from pkg import Missing": "pkg.Missing",
    "try:\n    from pkg import Missing\nexcept ValueError:\n    pass": "pkg.Missing",
    "try:\n    from pkg import Missing\nexcept ImportError:\n    raise SystemExit": "pkg.Missing",
    "try:\n    from pkg import Missing\nexcept ImportError:\n    from pkg import Absent": "pkg.Missing",
    "try:\n    pass\nexcept ImportError:\n    pass\nelse:\n    from pkg import Missing\nfrom pkg import Missing": "pkg.Missing",
}


@pytest.mark.parametrize("consumer", FOUND)
def test_a_name_that_is_there_is_found(tmp_path: Path, consumer: str) -> None:
    assert window(tmp_path, consumer).missing == []


@pytest.mark.parametrize("consumer", sorted(MISSING))
def test_a_name_that_is_not_there_is_missed_with_its_line(tmp_path: Path, consumer: str) -> None:
    missing = window(tmp_path, consumer).missing
    assert [line.partition(", imported at ")[0] for line in missing] == [MISSING[consumer]]
    assert "app/main.py:" in missing[0]


def test_one_alternative_is_enough_and_the_report_says_which(tmp_path: Path) -> None:
    found = window(
        tmp_path, "try:\n    from pkg.new import Engine\nexcept ImportError:\n    from pkg.core import Engine\n"
    )
    assert found.missing == []
    assert found.notes == [
        "alternative taken: pkg.core.Engine, for want of: pkg.new.Engine, imported at app/main.py:2; it is now in pkg.core"
    ]


def test_alternatives_may_be_nested(tmp_path: Path) -> None:
    text = (
        "try:\n    from pkg.one import X\nexcept ImportError:\n"
        "    try:\n        from pkg.two import X\n    except ModuleNotFoundError:\n        from pkg.core import start\n"
    )
    assert window(tmp_path, text).missing == []
    assert window(tmp_path, text.replace("import start", "import gone")).missing != []


def test_a_guarded_import_whose_handler_goes_on_is_optional(tmp_path: Path) -> None:
    assert window(tmp_path, "try:\n    import pkg.gone\nexcept ImportError:\n    pkg = None\n").missing == []


def test_a_miss_says_where_the_name_is_today(tmp_path: Path) -> None:
    (line,) = window(tmp_path, "from pkg import Deep\n").missing
    assert line == "pkg.Deep, imported at app/main.py:1; it is now in pkg.sub.inner"


def test_a_module_that_answers_any_name_is_unknown_until_imported(tmp_path: Path) -> None:
    found = window(tmp_path, "from pkg.lazy import anything\nfrom pkg.native import kernel\n")
    assert (found.missing, [str(use) for use in found.unknown]) == ([], ["pkg.lazy.anything", "pkg.native.kernel"])


def test_a_waived_miss_stays_listed_and_an_idle_waiver_is_reported(tmp_path: Path) -> None:
    consumer = {"app/main.py": "import pkg\n", "app/hooks/opt.py": "from pkg import Missing\n"}
    found = window(tmp_path, consumer, unused={"app/hooks/*": "opt-in", "app/none/*": "nothing"})
    assert found.missing == []
    assert [note.partition(":")[0] for note in found.notes] == ["waived (opt-in)", "waives nothing"]


def test_three_generations_of_a_provider_are_told_apart(tmp_path: Path) -> None:
    """A class that moves between releases, and a consumer that knows two of its places."""
    consumer = "try:\n    from pkg.launchers.args import Args\nexcept ModuleNotFoundError:\n    from pkg.openai.args import Args\n"
    generations = {"old": "pkg/openai/args.py", "new": "pkg/launchers/args.py", "newer": "pkg/cli/args.py"}
    missing = {
        name: window(tmp_path / name, consumer, {"pkg/__init__.py": "", path: "class Args: pass\n"}).missing
        for name, path in generations.items()
    }
    assert (missing["old"], missing["new"]) == ([], [])
    assert missing["newer"] == ["pkg.launchers.args.Args, imported at app/main.py:2; it is now in pkg.cli.args"]


def test_a_namespace_package_spans_several_roots(tmp_path: Path) -> None:
    tree(tmp_path / "consumer", {"app/main.py": "from pkg.left import L\nfrom pkg.right import R\n"})
    tree(tmp_path / "one", {"pkg/left.py": "L = 1\n"})
    tree(tmp_path / "two", {"pkg/right.py": "R = 1\n"})
    found = imports.window([tmp_path / "consumer" / "app"], ["pkg"], [tmp_path / "one", tmp_path / "two"], {})
    assert found.missing == []
