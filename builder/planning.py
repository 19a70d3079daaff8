"""The plan of every requirement set of an image, as probes: each foreseen after those that it is installed after."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from builder import resolve
from builder.probes import Fault, Probe, Trees, Untried

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.entries import Source
    from builder.facts import Facts
    from builder.manifest import Manifest
    from builder.resolve import Plan


@dataclass
class Plans:
    """What the requirement sets of an image come to, in the order in which they are installed; each planned once."""

    manifest: Manifest
    facts: Facts
    cache: Path
    trees: Trees
    _made: dict[str, Plan] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def sources(self) -> list[Source]:
        return [source for source in self.manifest.fetched if source.requirements]

    def of(self, wanted: Source) -> Plan:
        """The plan of a source's set, and before it those of the sets that it builds on.

        Raises:
            Untried: where its tree cannot be had, or the index does not answer.
            Fault: where the repository does not have it.
        """
        with self._lock:
            for source in self.sources[: self.sources.index(wanted)]:
                with contextlib.suppress(Untried, Fault):  # then the next one says that it knows nothing of it
                    self._plan(source)
            return self._plan(wanted)

    def _plan(self, source: Source) -> Plan:
        if source.name not in self._made:
            tree = self.trees.of(source) if source.requirements and source.requirements.file else None
            so_far = [plan for plan in self._made.values() if plan.passed]
            try:
                self._made[source.name] = resolve.plan(
                    self.manifest,
                    self.facts,
                    source,
                    tree,
                    cache=self.cache,
                    offline=self.trees.offline,
                    so_far=so_far,
                )
            except resolve.NotAskedError as reason:
                raise Untried(str(reason)) from reason
        return self._made[source.name]


def probes(plans: Plans) -> Iterator[Probe]:
    for source in plans.sources:
        yield Probe(
            f"{source.name}'s requirements have a plan that leaves the base alone",
            "plan",
            lambda source=source: _planned(source, plans),  # type: ignore[misc]
        )


def _planned(source: Source, plans: Plans) -> tuple[str, tuple[str, ...]]:
    found = plans.of(source)
    if not found.passed:
        told = [f"{refusal.what}\n    {refusal.requested_by}".rstrip() for refusal in found.refusals]
        keys = dict.fromkeys(key for refusal in found.refusals for key in refusal.change)
        hint = " or ".join(keys) or f"sources.{source.name}.requirements"
        raise Fault("\n".join([*told, *([f"no plan: {found.no_plan}"] if found.no_plan else [])]), f"change {hint}")
    return f"{len(found.planned)} distributions", found.assumed
