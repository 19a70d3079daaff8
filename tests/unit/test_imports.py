"""The API window, on small trees of every form that an import and a definition can take."""

from __future__ import annotations

import ast
import gc
import importlib.util
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    "pkg/dangling.py": "from pkg.gone import X\n",
    "pkg/fallback.py": "X = None\ntry:\n    from pkg.gone import X\nexcept ImportError:\n    pass\n",
    "pkg/foreign.py": "from json import loads, gone\nimport json as j, os.path\nfrom json import *\n",
    "pkg/public.py": "__all__ = ['A']\n__all__ += ['E']\nA = B = _C = 1\nclass E: pass\n",
    "pkg/computed.py": "import json\n__all__ = [*json.__all__, '_C']\nA = _C = 1\n",
    "pkg/plain.py": "A = _C = 1\n",
    "pkg/of_folder.py": "from pkg.sub import *\n",
    "pkg/of_public.py": "from pkg.public import *\n",
    "pkg/of_computed.py": "from pkg.computed import *\n",
    "pkg/of_plain.py": "from pkg.plain import *\n",
    "pkg/typed.py": (
        "import typing\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg.core import Engine\n"
        "if typing.TYPE_CHECKING:\n    Seen = 1\nelse:\n    Run = 1\ndeclared: int\nL = [item for item in (1,)]\n"
    ),
    "pkg/filled.py": "globals()['X'] = 1\n",
    "pkg/hooked/__init__.py": "import sys\nsys.meta_path.append(None)\n",
    "pkg/same/__init__.py": "from pkg.same.same import same\n",
    "pkg/same/same.py": "class same: other = 1\n",
    "pkg/forms.py": (
        "for i, (j, k) in (): pass\nwith open('x') as handle: pass\nif (walrus := 1): pass\naugmented = 0\naugmented += 1\n"
        "try:\n    tried = 1\nfinally:\n    at_last = 1\nwhile True:\n    class Looped: pass\n"
    ),
    "pkg/torn.py": "def (\n",
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
    "import typing as t\nif t.TYPE_CHECKING:\n    from pkg import Missing",
    "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import pkg\nelse:\n    from pkg import Missing",
    "from pkg.fallback import X",
    "from pkg.foreign import loads, j, os",
    "from pkg.of_public import A, E",
    "from pkg.of_computed import A, _C",
    "from pkg.of_plain import A",
    "from pkg.public import B, _C",
    "from pkg.typed import Run",
    "from pkg.forms import i, j, k, handle, walrus, augmented, tried, at_last, Looped",
    "from pkg.same import same\nsame.other",
    "import pkg.core as c\ndef f(c):\n    return c.anything",
    "import pkg.core as c\nf = lambda c: c.anything\ng = [c.anything for c in ()]",
    "import pkg.core as c\nc.added = 1\ndel c.added",
    "import pkg\npkg.__file__.upper().lower()",
    "import pkg.core as c\nif hasattr(c, 'new'):\n    c.new()",
    "import pkg.core as c\ntry:\n    c.new()\nexcept AttributeError:\n    pass",
    "from __future__ import annotations\nfrom pkg import core\ndef f(x: core.Missing) -> core.Missing: ...",
    "from pkg.core import Engine\nEngine.create().anything",
    "try:\n    from pkg import gone\nexcept ImportError:\n    gone = None\nif gone:\n    gone.anything()",
    "try:\n    from pkg import gone\nexcept ImportError:\n    pass\ndef f():\n    gone.anything()",
    "def f():\n    gone.anything()\ntry:\n    from pkg import gone\nexcept ImportError:\n    gone = None",
    "from importlib import import_module\nimport_module('.inner', package='pkg.sub')\nimport_module('..core', 'pkg.sub')",
    "from importlib import import_module\nimport_module()\nimport_module('.x', package=name)",
    "try:\n    import pkg.gone as m\nexcept ImportError:\n    import pkg.core as m\nm.anything",
    "try:\n    import pkg.gone as g\nexcept ImportError:\n    g = None\nelse:\n    import pkg.core",
    "try:\n    from pkg.gone import X\nexcept ImportError:\n    def X():\n        raise RuntimeError",
    "try:\n    from pkg.gone import X\nexcept ImportError:\n    class X:\n        def f(self): raise RuntimeError",
    "from importlib import import_module\nname = 'x'\nimport_module(name)\nimport_module('pkg.core')\nimport_module('.core', 'pkg')",
    "from .pkg import Missing\nfrom . import pkg\npkg.Missing",
    "try:\n    from pkg import gone\nexcept BaseException:\n    gone = None",
    "try:\n    from pkg import gone\nexcept Exception:\n    gone = None",
    "from pkg import core\n{core.anything for core in ()}",
    "from pkg import core\nx = (core.anything for core in ())",
    "from pkg import core\nx = {core.anything: 1 for core in ()}",
    "import pkg.core as c\nasync def f(c):\n    return c.anything",
    "from pkg import __dict__, __doc__, __file__, __loader__, __name__, __package__, __path__, __spec__",
    "from pkg.core import Engine\nodd = '\\d'",
    "def import_module(): ...\nimport_module()",
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
    "try:\n    from pkg import Missing\nexcept ImportError:\n    if True: raise": "pkg.Missing",
    "try:\n    from pkg import Missing\nexcept ImportError:\n    class X: raise SystemExit": "pkg.Missing",
    "try:\n    pass\nexcept ImportError:\n    pass\nelse:\n    from pkg import Missing": "pkg.Missing",
    "try:\n    import pkg.core\nexcept ImportError:\n    pass\nelse:\n    from pkg import Missing": "pkg.Missing",
    "try:\n    import pkg.core\nfinally:\n    from pkg import Missing": "pkg.Missing",
    "try:\n    from pkg import Missing\nexcept ImportError as error:\n    raise SystemExit from error": "pkg.Missing",
    "try:\n    from pkg import Missing\nexcept (ValueError, KeyError):\n    from pkg.core import Engine": "pkg.Missing",
    "from pkg import core\ncore.Missing()": "pkg.core.Missing",
    "from pkg import core\ndef f(x: core.Missing): ...": "pkg.core.Missing",
    "from pkg import core as c\nc.Missing()": "pkg.core.Missing",
    "def f():\n    return c.Missing\nimport pkg.core as c": "pkg.core.Missing",
    "import pkg.core as c\nx = [c.Missing for _ in ()]": "pkg.core.Missing",
    "import pkg.core as c\nc.Missing(c.Engine[int])\nc.Missing.more\nc.Missing": "pkg.core.Missing",
    "import pkg.core as c\nprint(c.Missing[0].more)": "pkg.core.Missing",
    "try:\n    from pkg import core\nexcept ImportError:\n    core = None\ncore.Missing": "pkg.core.Missing",
    "try:\n    import pkg.gone\nexcept ImportError:\n    pass\ndef f():\n    from pkg.gone import X": "pkg.gone.X",
    "from pkg import Missing\nMissing.one\nMissing.two": "pkg.Missing",
    "from importlib import import_module\nimport_module('pkg.gone')": "pkg.gone",
    "from importlib import import_module\nimport_module('.gone', 'pkg.sub')": "pkg.sub.gone",
    "from pkg.dangling import X": "pkg.dangling.X",
    "from pkg.of_public import B": "pkg.of_public.B",
    "from pkg.of_plain import _C": "pkg.of_plain._C",
    "from pkg.typed import Engine": "pkg.typed.Engine",
    "from pkg.typed import Seen": "pkg.typed.Seen",
    "from pkg.typed import declared": "pkg.typed.declared",
    "from pkg.typed import item": "pkg.typed.item",
    "from pkg.core import *\nfrom pkg.gone import *": "pkg.gone",
    "from pkg import core\ndef f():\n    core = 1\ncore.Missing": "pkg.core.Missing",
    "try:\n    pass\nexcept ValueError:\n    from pkg import Missing": "pkg.Missing",
    "from pkg.of_folder import Missing": "pkg.of_folder.Missing",
}

UNKNOWN = {
    "from pkg.lazy import anything": "pkg.lazy.anything",
    "from pkg.native import kernel": "pkg.native.kernel",
    "from pkg.native.inner import kernel": "pkg.native.inner.kernel",
    "from pkg.filled import X": "pkg.filled.X",
    "from pkg.hooked.virtual import X": "pkg.hooked.virtual.X",
    "from pkg.hooked.virtual.more import X": "pkg.hooked.virtual.more.X",
    "from pkg.torn import X": "pkg.torn.X",
    "from pkg.foreign import dumps": "pkg.foreign.dumps",
}


@pytest.mark.parametrize("consumer", FOUND)
def test_a_name_that_is_there_is_found(tmp_path: Path, consumer: str) -> None:
    """The comment: a file that does not name the provider is not looked at."""
    assert window(tmp_path, f"{consumer}\n# pkg\n").missing == []


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


@pytest.mark.parametrize("consumer", sorted(UNKNOWN))
def test_what_no_reader_can_tell_is_unknown_until_imported(tmp_path: Path, consumer: str) -> None:
    found = window(tmp_path, consumer)
    assert (found.missing, [str(use) for use in found.unknown]) == ([], [UNKNOWN[consumer]])


def test_a_name_whose_import_failed_is_missing_with_the_reason(tmp_path: Path) -> None:
    window(tmp_path, "from pkg.core import Engine\n")
    folders, roots = [tmp_path / "consumer" / "app"], [tmp_path / "provider"]
    failing = {("pkg.core", "Engine"): "ImportError: libx.so"}
    found = imports.window(folders, ["pkg"], roots, {}, failing)
    assert found.missing == ["pkg.core.Engine, imported at app/main.py:1; it fails: ImportError: libx.so"]


def test_a_consumer_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    (line,) = window(tmp_path, "from pkg import Engine\ndef (\n").missing
    assert line.startswith("app/main.py cannot be read: ")


def test_a_file_that_names_no_provider_is_nobodys_to_read(tmp_path: Path) -> None:
    assert window(tmp_path, {"app/main.py": "import pkg\n", "app/other.py": "def (\n"}).missing == []


def test_a_waived_miss_stays_listed_and_an_idle_waiver_is_reported(tmp_path: Path) -> None:
    consumer = {"app/main.py": "import pkg\n", "app/hooks/opt.py": "from pkg import Missing\n"}
    found = window(tmp_path, consumer, unused={"app/hooks/*": "opt-in", "app/none/*": "nothing"})
    assert found.missing == []
    assert [note.partition(":")[0] for note in found.notes] == ["waived (opt-in)"]
    assert found.idle == {"app/none/*"}


TOP = {
    "absolute": ("from app.hooks import opt\n", "app/main.py"),
    "relative": ("from .hooks import opt\n", "app/main.py"),
    "plain": ("import app.hooks.opt as o\n", "app/main.py"),
    "in a class": ("class K:\n    import app.hooks.opt\n", "app/main.py"),
    "in a condition": ("if True:\n    import app.hooks.opt\n", "app/main.py"),
    "through another waived one": ("import app.hooks.first\n", "app/hooks/first.py"),
    "in a function": ("def f():\n    import app.hooks.opt\n", None),
    "optional": ("try:\n    import app.hooks.opt\nexcept ImportError:\n    pass\n", None),
    "for types only": ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import app.hooks.opt\n", None),
    "another name": ("from app.hooks import other\n", None),
}


@pytest.mark.parametrize("case", sorted(TOP))
def test_a_file_that_a_required_one_imports_at_its_top_cannot_be_waived(tmp_path: Path, case: str) -> None:
    text, by = TOP[case]
    consumer = {
        "app/main.py": text, "app/hooks/__init__.py": "", "app/hooks/first.py": "from . import opt\n",
        "app/hooks/opt.py": "from pkg import Missing\n", "app/hooks/other.py": "",
    }  # fmt: skip
    found = window(tmp_path, consumer, unused={"app/hooks/*": "opt-in"})
    refused = [line for line in found.missing if "cannot waive" in line]
    wanted = [f"unused app/hooks/* cannot waive app/hooks/opt.py: {by} imports it at its top"] if by else []
    assert refused == wanted
    assert any("pkg.Missing, imported at app/hooks/opt.py:1" in line for line in (found.missing if by else found.notes))


def test_what_a_waived_file_takes_does_not_join_the_window(tmp_path: Path) -> None:
    consumer = {"app/main.py": "import pkg\n", "app/hooks/opt.py": "from pkg.core import Engine\n"}
    assert window(tmp_path, consumer, unused={"app/hooks/*": "opt-in"}).names() == ["pkg"]


def test_a_new_place_is_where_the_module_defines_the_name(tmp_path: Path) -> None:
    """Not where a class has a method of that name, nor where the name is imported only."""
    provider = {
        "pkg/__init__.py": "", "pkg/one.py": "class K:\n    def stop(self): pass\n    halt = 1\n",
        "pkg/two.py": "from pkg.three import halt\n", "pkg/three.py": "if True:\n    halt = 1\n",
        "pkg/new/engine.py": "",
    }  # fmt: skip
    consumer = "from pkg import stop\nfrom pkg import halt\nimport pkg.engine\nimport pkg\npkg.one.halt\n"
    assert window(tmp_path, consumer, provider).missing == [
        "pkg.stop, imported at app/main.py:1; nothing defines that name",
        "pkg.halt, imported at app/main.py:2; it is now in pkg.three",
        "pkg.engine, imported at app/main.py:3; it is now in pkg.new.engine",
        "pkg.one.halt, imported at app/main.py:5; it is now in pkg.three",
    ]


def test_the_report_says_when_the_first_alternative_was_taken(tmp_path: Path) -> None:
    text = "try:\n    from pkg.core import Engine\nexcept ImportError:\n    from pkg.old import Engine\n"
    assert window(tmp_path, text).notes == ["alternative taken: pkg.core.Engine, the first"]


STATEMENTS = st.sampled_from(
    [
        "{0} = 1", "{0}: int = 1", "{0}: int", "({0}, [{1}, *_]) = (1, (2, 3))", "def {0}({1}=0): {2} = 1", "class {0}: {1} = 1",
        "for {0} in (1,): pass", "if ({0} := 1): {1} = 2", "[{0} for {0} in (1,)]", "lambda {0}: ({1} := 1)", "import json as {0}",
        "from json import loads as {0}", "import os.path", "from os import path as {0}, sep as {1}",
        "try:\n    {0} = 1\nfinally:\n    {1} = 2", "with __import__('io').StringIO() as {0}: pass",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {0} = 1\nelse:\n    {1} = 1", "async def {0}(): pass",
    ]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(STATEMENTS, st.permutations(list("abcd"))), max_size=6))
def test_what_a_module_defines_is_what_it_has_once_it_ran(statements: list[tuple[str, list[str]]]) -> None:
    text = "\n".join(statement.format(*names) for statement, names in statements)
    module: dict[str, object] = {}
    exec(text, module)  # noqa: S102 - the answer of Python itself
    defined = imports.definitions(ast.parse(text), "pkg")
    assert {*defined} - {"_"} == {*module} - {"_", "__builtins__", "__annotations__"}


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


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    files = [f"{(7 * i) % 40:02}/x.py" for i in range(40)]
    tree(tmp_path, dict.fromkeys(files, ""))
    assert [str(path.relative_to(tmp_path)) for path in imports.python_files(tmp_path)] == sorted(files)


def test_a_try_that_catches_no_failed_import_needs_what_it_tries_and_what_comes_then(tmp_path: Path) -> None:
    found = window(
        tmp_path, "try:\n    import pkg.gone\nexcept KeyError:\n    pass\nelse:\n    from pkg import Missing"
    )
    assert [line.partition(",")[0] for line in found.missing] == ["pkg.gone", "pkg.Missing"]


def test_files_are_parsed_side_by_side_whatever_a_collection_does_between() -> None:
    def let_another_in(*_: object) -> None:
        time.sleep(0.0001)

    texts = [b"def f(a):\n    return [[[a]]]\n" * 50, Path(ast.__file__).read_bytes()] * 4
    before = gc.get_threshold()
    gc.callbacks.append(let_another_in)  # as any library may
    gc.set_threshold(100)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(imports.parse, texts))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(let_another_in)
    assert [len(tree.body) for tree in trees[:2]] == [50, len(ast.parse(texts[1]).body)]
