"""One file over another: what is joined, what replaces, and where each value stands."""

from __future__ import annotations

from pathlib import Path

from builder import located_yaml
from builder.errors import Location

OWN, SHARED = Path("own.yaml"), Path("shared.yaml")
UPPER = "a: own\nlist: [3]\nmap:\n  own: 1\n  both: 2\nkind: text\n"
LOWER = "a: shared\nb: shared\nlist: [1, 2]\nmap:\n  both: 1\n  shared: 0\nkind:\n  inner: 1\n"
WHOLE = located_yaml.parse(UPPER.encode(), OWN).over(located_yaml.parse(LOWER.encode(), SHARED))


def test_keys_are_joined_and_every_other_value_is_the_own_one() -> None:
    assert WHOLE.value == {
        "a": "own",
        "b": "shared",
        "list": ("3",),
        "map": {"own": "1", "both": "2", "shared": "0"},
        "kind": "text",
    }


def test_what_only_the_upper_file_has_stands_first() -> None:
    assert list(WHOLE.value["map"]) == ["own", "both", "shared"]


def test_a_value_stands_in_the_file_that_gives_it() -> None:
    assert WHOLE.where("map", "both") == Location(OWN, 5, 3)
    assert WHOLE.where("map", "shared") == Location(SHARED, 6, 3)
    assert WHOLE.where("b") == Location(SHARED, 2, 1)


def test_nothing_is_left_of_what_was_replaced() -> None:
    assert ("list", 1) not in WHOLE.places
    assert ("kind", "inner") not in WHOLE.places


def test_a_scalar_is_exchanged_in_its_own_file_only() -> None:
    assert WHOLE.rewritten({("b",): "new"}) == {OWN: UPPER, SHARED: LOWER.replace("b: shared", "b: new")}
    both = WHOLE.rewritten({("a",): "x", ("map", "both"): "y", ("map", "shared"): "z"})
    assert both[OWN] == UPPER.replace("a: own", "a: x").replace("both: 2", "both: y")
    assert both[SHARED] == LOWER.replace("shared: 0", "shared: z")
