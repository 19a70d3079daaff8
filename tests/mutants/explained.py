"""Changes of the guards that no unit test notices, and why that is right: by program and name."""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str], str] = {
    ("builder/claims.py", "_has: remove `return False`"): "what comes back then, None, is as false",
    ("builder/dockerfile.py", '_commands: leave out `not set(word) & set("<>")`'): (
        "a redirection to a program of PATH would be called one more tool: a false alarm, no fault that passes"
    ),
    (
        "builder/dockerfile.py",
        "inputs: remove `return self.keyword, self.text, tuple(heredoc.body for heredoc in self`",
    ): ("what changes an image: the tests of tags and of the matrix notice"),
    (
        "builder/inside/device.py",
        'unzstd: remove `raise Unreadable("compressed with zstd, and the image has no libzstd.s`',
    ): ("the machine of the tests has the library"),
    ("builder/inside/checked.py", "ask: remove `self.end()`"): (
        "whoever gives no answer has ended, is ended by the watch, or ends when nobody can ask it any more"
    ),
    ("builder/inside/source.py", "insist: remove `time.sleep(PAUSE_S)`"): "a busy host is asked again sooner",
    ("builder/inside/imports.py", "defines: leave out `star`"): "for mypy: a `*` always has a module",
    ("builder/inside/imports.py", "has: leave out `HERE not in found`"): (
        "one more look at a name that was found, and what was found counts first"
    ),
    (
        "builder/inside/imports.py",
        "names: leave out `said`",
    ): "for mypy: `running` passes no declaration without a value",
    ("builder/inside/imports.py", "visit_Attribute: leave out `None`"): "a name that is False is none as well",
    ("builder/rules.py", 'builder_stops_first: leave out `instruction.keyword == "RUN"`'): (
        "of all instructions RUN alone takes --mount"
    ),
    ("builder/rules.py", "module: remove an entry of `Context`"): "a type, which mypy reads and no run does",
    ("builder/toolchain.py", "module: remove an entry of `11`"): "another Python's library is taken, of the same make",
}
