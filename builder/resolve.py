"""What a source's requirement set would install, foreseen without the base: uv plans, the judge's own rules hold."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import VERSION_PATTERN
from pip._vendor.packaging.requirements import Requirement

from builder import lists, uv, wheelhouse
from builder.inside import judge
from builder.inside.judge import Ask, Item
from builder.uv import Asking, NotAskedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.entries import Source
    from builder.facts import Facts
    from builder.manifest import Manifest

__all__ = ["NotAskedError", "Plan", "Planned", "Refusal", "plan"]

TIME_LIMIT_S = 120
VERSION = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)  # a tag may be none


@dataclass(frozen=True, slots=True)
class Planned:
    """One distribution that would be installed, and who asks for it."""

    name: str
    version: str
    requested_by: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that the judge in the image would refuse.

    Attributes:
        package: the distribution; empty where a line names none.
        change: keys of the manifest, of which one is the remedy.
    """

    package: str
    what: str
    requested_by: str
    change: tuple[str, ...]

    def __str__(self) -> str:
        return "\n    ".join(filter(None, (self.what, self.requested_by, f"change {' or '.join(self.change)}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What became of one requirement set.

    Attributes:
        planned: what would be installed; empty where all is there, and where there is no plan.
        no_plan: uv's reasons where it finds none.
        assumed: what had to be taken for granted.
    """

    planned: tuple[Planned, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    no_plan: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.refusals and not self.no_plan


def plan(  # noqa: PLR0913 (each is one thing that a plan depends on)
    manifest: Manifest,
    facts: Facts,
    source: Source,
    tree: Path | None,
    *,
    cache: Path,
    offline: bool = False,
    so_far: Sequence[Plan] = (),
    time_limit_s: float = TIME_LIMIT_S,
) -> Plan:
    """What the requirement set of a source comes to.

    Args:
        tree: the source's pinned tree; None where its set has no file.
        cache: a folder of uv's, kept.
        offline: ask no host, only the cache.
        so_far: the plans of the sets that are installed before this one.
        time_limit_s: for each of the up to four questions that a plan takes.

    Raises:
        NotAskedError: where the index does not answer, or not in time, or uv or pip do not work.
    """
    with tempfile.TemporaryDirectory(prefix="plan-") as scratch:
        root = Path(scratch)
        base = _lay_out(manifest, facts, source, tree, root)
        asking = Asking(
            python=facts.python.version,
            platform=uv.platform(facts.system),
            pip={},
            there={**base, **{one.name: one.version for before in so_far for one in before.planned}},
            house=root / "house",
            scratch=root / "uv",
            cache=cache.absolute(),
            offline=offline,
            time_limit_s=time_limit_s,
        )
        found = _foresight(root, source, facts, asking).judged()
    return replace(found, assumed=(*_assumed(manifest, facts, source, so_far), *found.assumed))


def _lay_out(manifest: Manifest, facts: Facts, source: Source, tree: Path | None, root: Path) -> dict[str, str]:
    """Write what uv and the judge find at `root`: policy, tree, and a wheel for each of what is installed; of these."""
    for folder in ("house", "uv"):
        (root / folder).mkdir()
    base = {**_base(manifest, facts), **_built(manifest, source)}
    for name, version in base.items():
        wheelhouse.simple(name, version).write(root / "house")
    _write_policy(manifest, facts, source, root)
    if tree:
        (root / source.name).symlink_to(tree.absolute())  # so that the place of a line begins with the source
    return base


def _base(manifest: Manifest, facts: Facts) -> dict[str, str]:
    """What is installed before the first set is resolved, without the sources."""
    there = {canonicalize_name(name): version for name, version in facts.distributions.items()}
    there |= {canonicalize_name(name): tool.version for name, tool in manifest.build_tools.items()}
    there |= {canonicalize_name(name): wheel.version for name, wheel in manifest.prebuilt.items()}
    gone = {canonicalize_name(name) for name in manifest.removed}
    return {str(name): version for name, version in there.items() if name not in gone}


def _before(manifest: Manifest, source: Source) -> list[Source]:
    """The sources whose sets are installed before that of `source`."""
    return manifest.fetched[: manifest.fetched.index(source)]


def _built(manifest: Manifest, source: Source) -> dict[str, str]:
    """The sources that are installed before the set of `source`, where a tag tells their versions."""
    earlier = [*manifest.installed_by("wheel"), *_before(manifest, source)]  # wheels are built before any set
    versions = {str(canonicalize_name(one.distribution)): one.public_version or "" for one in earlier}
    return {name: version for name, version in versions.items() if VERSION.fullmatch(version)}


def _write_policy(manifest: Manifest, facts: Facts, source: Source, root: Path) -> None:
    """What the judge reads, as the image has it; only the file's place is another."""
    assert source.requirements is not None  # noqa: S101 - the caller has asked
    rules = lists.requirement_set(source)
    if source.requirements.file:
        rules["file"] = f"{source.name}/{source.requirements.file}"
    (root / "sets").mkdir()
    (root / "sets" / f"{source.step('REQUIREMENTS')}.json").write_text(json.dumps(rules), encoding="utf-8")
    (root / "policy.json").write_text(json.dumps(lists.policy(manifest)), encoding="utf-8")
    sealed = {name for pattern in manifest.sealed for name in facts.matching(pattern)}
    seal = {canonicalize_name(name): {"version": facts.distributions[name]} for name in sealed}
    seal |= {canonicalize_name(name): {"version": wheel.version} for name, wheel in manifest.prebuilt.items()}
    (root / "seal.json").write_text(json.dumps({"distributions": seal}), encoding="utf-8")


def _assumed(manifest: Manifest, facts: Facts, source: Source, so_far: Sequence[Plan]) -> Iterator[str]:
    title = f"images/bases/{manifest.base.facts}.yaml"
    yield f"the base has the {len(facts.distributions)} distributions of {title}, and no others"
    yield "what these require is there, and each has a RECORD: neither is among the facts"
    if facts.system not in uv.GLIBC:
        yield f"the C library of {facts.system!r} is not known: wheels are chosen for uv's own idea of a Linux"
    if len([one for one in _before(manifest, source) if one.requirements]) > len(so_far):
        yield "a set that is installed before this one has no plan: this one is planned as if it were not"


class Foresight(judge.Judge):
    """The judge of a step as the image has it; its plan comes from uv, and what is installed from facts."""

    def __init__(self, root: Path, step: str, facts: Facts, asking: Asking) -> None:
        super().__init__(root, step, asking.scratch)
        self.facts = facts
        self.asking = replace(asking, pip=self.environment)
        self.builds = [str(canonicalize_name(name)) for name in self.policy["source_builds"]]
        self.known: list[Item] = []  # what is there or planned, by uv's last answer

    def judged(self) -> Plan:
        """The plan of the step's overrides and of the rest, as far as there is one; every refusal."""
        notes = [f"{key} of this machine's pip is not used, as in the image" for key in dict.fromkeys(self.unheard)]
        notes += [f"{name} is built from its source archive in the image: not planned here" for name in self.builds]
        try:
            overrides, rest = self.lines()
        except judge.Fault as fault:
            faults = [Refusal("", str(told), "", (self.rules["where"],)) for told in fault.args]
            return Plan(refusals=tuple(faults), assumed=tuple(notes))
        parts = [self._part(overrides, "--no-deps"), self._part(rest)]
        planned = {one.name: one for part in reversed(parts) for one in part.planned}
        return Plan(
            planned=tuple(planned[name] for name in sorted(planned)),
            refusals=tuple(dict.fromkeys(refusal for part in parts for refusal in part.refusals)),
            no_plan="\n".join(part.no_plan for part in parts if part.no_plan),
            assumed=tuple(notes),
        )

    def _part(self, lines: list[Ask], *options: str) -> Plan:
        items, words = self.dry_run(lines, *options, bound=True) if lines else ([], "")
        if items is None:
            return Plan(no_plan=words, refusals=tuple(map(_conflict, self.conflicts(lines))))
        asked = judge.asks(lines, self.known)
        chains = {judge.name_of(need): chain for need, chain in reversed(asked)}
        return Plan(
            planned=tuple(Planned(item.name, item.version, chains.get(item.name, "")) for item in items),
            refusals=tuple(
                Refusal(item.name, f"{item.name} {item.version} {what}", chains.get(item.name, ""), tuple(places))
                for item in items
                for what, *places in self.against(item)
            ),
        )

    def lines(self) -> tuple[list[Ask], list[Ask]]:
        """As in the image; but what a marker says is asked of the base, not of this machine."""
        overrides, self.overrides = self.overrides, {}
        try:
            _, asked = super().lines()
        finally:
            self.overrides = overrides
        exact, rest = [], []
        for need, place in asked:
            name = judge.name_of(need)
            elsewhere = need.marker and not need.marker.evaluate(markers(self.facts))
            if elsewhere or name in self.builds:
                continue
            need.marker = None
            if name in overrides:
                exact.append((Requirement(name + overrides[name]["version"]), place))
            else:
                rest.append((need, place))
        return exact, rest

    def against(self, item: Item) -> Iterator[tuple[str, ...]]:
        """As in the image; but copies without RECORD are this machine's own, and nobody's concern."""
        return (found for rule in judge.PLAN if rule is not judge.unrecorded for found in rule(self, item))

    def dry_run(self, lines: list[Ask], *options: str, bound: bool = False) -> tuple[list[Item] | None, str]:
        """As in the image, by uv: what it would install, or its reasons why nothing fits.

        Args:
            bound: by the seal and the manifest. Otherwise what is there is part of the answer: it may ask, too.
        """
        constraints = [name + held for name, (held, *_) in self.held.items()] if bound else []
        answer = uv.answer(self.asking, [str(need) for need, _ in lines], constraints, *options)
        there = self.asking.there
        self.known = [
            Item(name, version, "", "", [*map(Requirement, answer.requires.get((name, version), ()))])
            for name, version in {**there, **answer.versions}.items()
        ]
        if answer.reasons:
            return (None if bound else self.known), answer.reasons
        return [item for item in self.known if not bound or there.get(item.name) != item.version], ""


def _foresight(root: Path, source: Source, facts: Facts, asking: Asking) -> Foresight:
    try:
        return Foresight(root, source.step("REQUIREMENTS"), facts, asking)
    except judge.Fault as fault:
        raise NotAskedError("\n".join(map(str, fault.args))) from fault


def markers(facts: Facts) -> dict[str, str]:
    """What the markers of requirements are asked: the base's interpreter, not this one."""
    version = facts.python.version
    return {
        "implementation_name": "cpython",
        "implementation_version": version,
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
        "sys_platform": "linux",
        "extra": "",
    }


def _conflict(told: str) -> Refusal:
    """A conflict as the judge tells it, in its parts."""
    chain, _, rest = told.partition(", but ")
    what, _, change = rest.partition("\n    change ")
    asked = re.search(r" asks for ([\w.-]+)", chain)
    places = change.partition("\n")[0].partition(", ")[2].split(" or ")
    return Refusal(str(canonicalize_name(asked[1])) if asked else "", what, chain, tuple(places))
