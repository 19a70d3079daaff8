"""How a farm of engines keeps up with a month of bumps, by simulation: where the time goes, which order wins."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import mean, quantiles

from benchmarks.telling import Target, tell
from builder import manifest

ROOT = Path(__file__).parents[1]
SEED, DAYS, IMAGES, A_FAMILY, BASES = 11, 30, 50, 5, 3
# Assumed, for nothing was built on a real base: how the declared minutes of an image fall to its kinds of steps, in
# the order of the Dockerfile, and how often a pin moves in a month.
SHARES = {"base": 0.04, "compile": 0.76, "requirements": 0.12, "vime": 0.04, "verify": 0.04}
BUMPS = {"base": 1, "compile": 2, "vime": 4}
PULL = 0.1  # of a step's minutes, to have what it left from a registry
HOUR, DAY = 60.0, 24 * 60.0


@dataclass(frozen=True, slots=True)
class Step:
    key: str  # says all that went into it, so two of one key are one step to a cache
    kind: str
    minutes: float


@dataclass(frozen=True, slots=True)
class Job:
    """An image that a bump has made stale, and when."""

    name: str
    arrived: float
    steps: tuple[Step, ...]

    @property
    def minutes(self) -> float:
        return sum(step.minutes for step in self.steps)

    @property
    def compiled(self) -> str:
        return next(step.key for step in self.steps if step.kind == "compile")


@dataclass(slots=True)
class Caches:
    """When each step is there to be taken, on each engine and in the registry that they may share.

    Attributes:
        compiles: what is in work, or was, and until when.
    """

    engines: list[dict[str, float]]
    is_shared: bool
    registry: dict[str, float] = field(default_factory=dict)
    compiles: list[tuple[str, float]] = field(default_factory=list)

    def after(self, engine: int, step: Step, now: float) -> tuple[float, str]:
        """When a step that begins now is done on an engine, and by what: `had`, `waited`, `pulled` or `ran`."""
        ready = self.engines[engine].get(step.key)
        if ready is not None:
            return max(now, ready), "waited" if ready > now else "had"
        if self.is_shared and self.registry.get(step.key, math.inf) <= now:
            return now + PULL * step.minutes, "pulled"
        return now + step.minutes, "ran"


@dataclass(slots=True)
class Month:
    """What became of the jobs: minutes from each bump to its image, and the minutes of engines by way and kind."""

    waits: list[float] = field(default_factory=list)
    spent: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    end: float = 0.0

    def hours(self, way: str, kind: str | None = None) -> float:
        return sum(minutes for (how, what), minutes in self.spent.items() if how == way and kind in {None, what}) / HOUR


# Of those that wait, the least begins. Told: the job, all that its bump has made stale, the engine, the time, what
# is there.
Order = Callable[[Job, Sequence[Job], int, float, Caches], "tuple[float, ...]"]


def arrival(job: Job, *_: object) -> tuple[float, ...]:
    return (job.arrived,)


def longest(job: Job, *_: object) -> tuple[float, ...]:
    return (-job.minutes,)


def shortest(job: Job, *_: object) -> tuple[float, ...]:
    return (job.minutes,)


def one_of_each(job: Job, batch: Sequence[Job], *_: object) -> tuple[float, ...]:
    """As `matrix` lists them: a list cannot know what is in work."""
    alike = [(each.minutes, each.name) for each in batch if each.compiled == job.compiled]
    return (sum(each < (job.minutes, job.name) for each in alike), job.minutes)


def apart(job: Job, _: Sequence[Job], engine: int, now: float, caches: Caches) -> tuple[float, ...]:
    """As `image --all` chooses: whose compile is not in work, rather one whose compile is done here, the shortest."""
    in_work = any(compiled == job.compiled and until > now for compiled, until in caches.compiles)
    done = caches.engines[engine].get(job.compiled, math.inf) <= now
    return (in_work, not done, job.minutes)


ORDERS: Mapping[str, Order] = {
    "by arrival": arrival,
    "longest first": longest,
    "shortest first": shortest,
    "one of each compile first": one_of_each,
    "no compile beside its like": apart,
}
USED, BEFORE = "no compile beside its like", "longest first"


def simulate(jobs: Sequence[Job], engines: int, order: Order, *, shared: bool = False, at_a_time: int = 1) -> Month:
    """Build all jobs; an engine keeps what it has built, and two builds of one step on it run that step once."""
    caches = Caches([{} for _ in range(engines)], shared)
    # Whoever is free longest begins; all engines before a second build on one of them.
    slots = itertools.product(range(at_a_time), range(engines))
    free = [(0.0, number, engine) for number, (_, engine) in enumerate(slots)]
    heapq.heapify(free)
    coming, waiting, month = sorted(jobs, key=lambda job: job.arrived), list[Job](), Month()
    batches = {when: list(some) for when, some in itertools.groupby(coming, lambda job: job.arrived)}
    at, now = 0, 0.0
    while at < len(coming) or waiting:
        since, slot, engine = heapq.heappop(free)
        now = max(now, since, *(() if waiting else (coming[at].arrived,)))
        while at < len(coming) and coming[at].arrived <= now:
            waiting.append(coming[at])
            at += 1
        job = min(waiting, key=lambda each: (*order(each, batches[each.arrived], engine, now, caches), each.name))
        waiting.remove(job)
        done = _build(job, engine, now, caches, month)
        month.waits.append(done - job.arrived)
        month.end = max(month.end, done)
        heapq.heappush(free, (done, slot, engine))
    return month


def _build(job: Job, engine: int, now: float, caches: Caches, month: Month) -> float:
    for step in job.steps:
        done, way = caches.after(engine, step, now)
        month.spent[way, step.kind] += done - now
        caches.engines[engine].setdefault(step.key, done)
        now = done
    caches.compiles.append((job.compiled, now))
    for step in job.steps:
        caches.registry[step.key] = min(now, caches.registry.get(step.key, math.inf))  # with its image, at the end
    return now


def month_of_bumps(minutes: float, seed: int = SEED) -> list[Job]:
    """A month of 50 images: five share base, vLLM and target, and differ in what comes after the compile."""
    dice, pins = Random(seed), Counter[str]()  # noqa: S311 (a simulation)
    families = range(IMAGES // A_FAMILY)
    bumps = [(f"base {base}", dice.uniform(0, DAYS * DAY)) for base in range(BASES) for _ in range(BUMPS["base"])]
    bumps += [(f"compile {one}", dice.uniform(0, DAYS * DAY)) for one in families for _ in range(BUMPS["compile"])]
    bumps += [("vime", dice.uniform(0, DAYS * DAY)) for _ in range(BUMPS["vime"])]
    first = [Job(f"{image:02}", 0.0, _steps(image, minutes, pins)) for image in range(IMAGES)]
    jobs = list(first)
    for pin, when in sorted(bumps, key=lambda bump: bump[1]):
        pins[pin] += 1
        jobs += [
            Job(f"{image:02}", when, _steps(image, minutes, pins)) for image in range(IMAGES) if pin in _pins(image)
        ]
    return jobs


def _pins(image: int) -> tuple[str, ...]:
    family = image // A_FAMILY
    return (f"base {family % BASES}", f"compile {family}", f"set of {image}", "vime", f"image {image}")


def _steps(image: int, minutes: float, pins: Mapping[str, int]) -> tuple[Step, ...]:
    """Each step's key has all pins so far: a cache knows a step by what stands before it, too."""
    family = image // A_FAMILY
    factor = 0.75 + 0.5 * (family % A_FAMILY) / (A_FAMILY - 1)  # assumed: families differ by half
    keys = itertools.accumulate(f"{pin}@{pins.get(pin, 0)}" for pin in _pins(image))
    parts = zip(keys, SHARES.items(), strict=True)
    return tuple(Step(key, kind, round(share * minutes * factor, 3)) for key, (kind, share) in parts)


def row(farm: str, registry: str, name: str, month: Month) -> list[object]:
    ran = month.hours("ran")
    waits = [minutes / HOUR for minutes in month.waits]
    figures = [mean(waits), quantiles(waits, n=20)[-1], month.end / HOUR, ran]
    return [
        farm,
        registry,
        name,
        *(round(figure, 1) for figure in figures),
        round(100 * month.hours("ran", "compile") / ran),
        round(month.hours("waited") + month.hours("pulled"), 1),
    ]


def main() -> None:
    minutes = float(manifest.load(ROOT / "images" / "rocm7.14.yaml").needs["minutes"])
    jobs = month_of_bumps(minutes)
    first = [job for job in jobs if not job.arrived]
    found: dict[tuple[str, str], dict[str, Month]] = {}
    for engines, shared in itertools.product((1, 10, 100), (False, True)):
        if engines > 1 or not shared:  # one engine has nobody to share with
            farm = (f"{engines} engine{'s' if engines > 1 else ''}, a month", "yes" if shared else "no")
            found[farm] = {name: simulate(jobs, engines, order, shared=shared) for name, order in ORDERS.items()}
    for at_a_time in (1, 2, 4):
        farm = (f"1 engine, all at once, {at_a_time} at a time", "no")
        found[farm] = {name: simulate(first, 1, order, at_a_time=at_a_time) for name, order in ORDERS.items()}
    targets = []
    for farm in (("10 engines, a month", "yes"), ("1 engine, all at once, 1 at a time", "no")):
        ratio = mean(found[farm][USED].waits) / mean(found[farm][BEFORE].waits)
        what = f"mean wait, {USED} against {BEFORE}: {farm[0]}"
        targets.append(Target(what=what, value=round(ratio, 2), allowed=0.9, unit="x"))
    many = found["1 engine, all at once, 4 at a time", "no"]
    ratio = many[USED].end / many[BEFORE].end
    what = f"end of the last image, {USED} against {BEFORE}: 1 engine, 4 at a time"
    targets.append(Target(what=what, value=round(ratio, 2), allowed=0.9, unit="x"))
    tell(
        title="A farm of engines in a month of bumps",
        how=f"python -m benchmarks.farm: a simulation, seed {SEED}; {len(jobs)} builds of {IMAGES} images",
        columns=[
            *("farm", "registry cache", "order", "mean wait h", "95 % wait h", "last image at h"),
            *("engine hours run", "of that compiling %", "hours waited or pulled"),
        ],
        rows=[row(*farm, name, month) for farm, months in found.items() for name, month in months.items()],
        targets=targets,
        notes=notes(minutes),
    )


def notes(minutes: float) -> list[str]:
    shares = ", ".join(f"{kind} {share:.0%}" for kind, share in SHARES.items())
    bumps = ", ".join(f"{kind} {count}" for kind, count in BUMPS.items())
    return [
        f"recorded: {minutes:.0f} minutes an image, as images/rocm7.14.yaml declares; no real build was timed",
        f"assumed: how these fall to steps ({shares}); families differ by up to a quarter either way",
        f"assumed: {A_FAMILY} images share base, vLLM and target; {BASES} bases; bumps a month, at any hour: {bumps}",
        (
            f"assumed: a registry has an image's steps once that is built, at {PULL:.0%} of their time, for any image; "
            "`--cache-from` takes only those of the same image"
        ),
        "assumed: an engine's cache keeps everything; two builds of one step on one engine run it once",
        "the time goes into compiles; without a registry, each engine compiles for itself what another has already",
        (
            f"`image --all` has the order {USED!r}; `matrix`, a list, cannot know what is in work and has "
            "'one of each compile first', which only one engine on its own does better without"
        ),
        "longest first had several images of one compile begin on one engine, and all but one wait for it",
        (
            "where no images share a compile, longest first may end sooner, by one build at most; the mean wait "
            "is shorter with the shortest first"
        ),
        "with 100 engines and a registry, a wait is hardly more than one build: more engines do not help",
    ]


if __name__ == "__main__":
    main()
