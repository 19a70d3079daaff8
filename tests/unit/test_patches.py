"""A patch of every class, judged by real git."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from builder import patches

LINES = [f"line {number}" for number in range(1, 41)]


def text(lines: list[str]) -> str:
    return "\n".join([*lines, ""])


def patch(old: list[str], new: list[str], name: str = "a/b.py") -> str:
    return "".join(
        difflib.unified_diff(
            text(old).splitlines(keepends=True), text(new).splitlines(keepends=True), f"a/{name}", f"b/{name}"
        )
    )


def changed(*numbers: int, by: str = "changed") -> list[str]:
    return [f"{line} {by}" if number in numbers else line for number, line in enumerate(LINES, 1)]


def verdict(tmp_path: Path, tree: list[str], content: str) -> patches.Verdict:
    file = tmp_path / "tree" / "a" / "b.py"
    file.parent.mkdir(parents=True)
    file.write_text(text(tree))
    (tmp_path / "x.patch").write_bytes(content.encode())
    before = file.read_text()
    found = patches.judge(tmp_path / "tree", tmp_path / "x.patch")
    assert found.good == (file.read_text() != before), "a patch is applied where its verdict is good, and nowhere else"
    return found


TWO = patch(LINES, changed(5, 30))
CASES: dict[str, tuple[patches.Class, list[str], str, str]] = {
    "as it stands": ("applies", LINES, TWO, ""),
    "lines before it": ("applies with an offset", ["new", "new", *LINES], TWO, "by 2, 2 lines"),
    "all of it there": ("already upstream", changed(5, 30), TWO, "every hunk"),
    "one hunk there": ("partly upstream", changed(5), TWO, "a/b.py hunk 1"),
    "another line nearby": ("only with fuzz", changed(3, by="other"), patch(LINES, changed(5)), "not all lines"),
    "another line there": ("conflicts", changed(30, by="rewritten"), TWO, "30: line 30 rewritten"),
    "no such file": ("conflicts", LINES, patch(LINES, changed(5), "a/c.py"), "the tree has no such file"),
    "empty": ("malformed", LINES, "\n", "it is empty"),
    "no hunk": ("malformed", LINES, "--- a/a/b.py\n+++ b/a/b.py\n", "it has no hunk"),
    "carriage returns": ("malformed", LINES, TWO.replace("\n", "\r\n"), "CR LF"),
    "cut off": (
        "malformed",
        LINES,
        TWO[: TWO.rindex("\n line 32")] + "\n",
        "the hunk says 7 lines before and 7 after, and has",
    ),
    "miscounted": ("malformed", LINES, TWO.replace("@@ -2,7 +2,7", "@@ -2,9 +2,9"), "the hunk says 9 lines before"),
    "no depth": ("malformed", LINES, TWO.replace("a/a/b.py", "a/b.py").replace("b/a/b.py", "a/b.py"), "one for -p0"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_patch_has_its_class_and_says_why(tmp_path: Path, case: str) -> None:
    kind, tree, content, detail = CASES[case]
    found = verdict(tmp_path, tree, content)
    assert (found.kind, detail in found.detail) == (kind, True), found


def test_every_class_has_a_case_and_every_refusal_a_remedy() -> None:
    assert {kind for kind, *_ in CASES.values()} == set(patches.REMEDIES)
    assert all(patches.REMEDIES[kind] for kind in patches.REMEDIES if kind != "applies")


def test_a_patch_that_fuzz_would_put_into_another_function_is_refused(tmp_path: Path) -> None:
    first = ["def one():", "    a = 1", "    b = 2", "    return a", ""]
    second = ["def two():", "    a = 1", "    b = 2", "    return b", ""]
    rewritten = ["def two():", "    return 7", ""]
    content = patch([*first, *second], [*first, second[0], "    a = 9", *second[2:]])
    assert verdict(tmp_path, [*first, *rewritten], content).kind not in patches.GOOD


def test_a_new_file_and_a_deleted_one_need_no_hunk_of_the_other(tmp_path: Path) -> None:
    content = "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    (tmp_path / "tree").mkdir()
    (tmp_path / "x.patch").write_text(content)
    assert patches.judge(tmp_path / "tree", tmp_path / "x.patch").kind == "applies"
    assert (tmp_path / "tree" / "n.py").read_text() == "one\ntwo\n"
    assert patches.judge(tmp_path / "tree", tmp_path / "x.patch").kind == "already upstream"


def test_a_patch_names_the_files_that_it_may_be_about_at_every_depth(tmp_path: Path) -> None:
    moved = "diff --git a/old one.py b/new.py\nsimilarity index 100%\nrename from old one.py\nrename to new.py\n"
    mode = "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
    (tmp_path / "x.patch").write_text(f"{moved}{mode}{patch(LINES, changed(5))}")
    assert {"old one.py", "run.sh", "a/b.py", "a/a/b.py", "b.py"} <= patches.touched(tmp_path / "x.patch")
