"""The figures of replies: mean ratings (SimulBench, Table 4), pairs (Table 1) and tasks (Table 2).

A figure rests on what was judged; what abstained is counted beside it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.results.dialogues import HIGHEST, LOWEST, is_aced
from dramaturg.results.means import Mean, mean_of

LAST_ONLY, FIRST, SUBSEQUENT = "last_only", "first_challenge", "subsequent_challenge"
"""The kinds of test script (section 4.2.2)."""
HARD = frozenset({FIRST, SUBSEQUENT})
"""The kinds that make the hard part."""
STATELESS, STATEFUL = "stateless", "stateful"
"""The kinds of simulation (section 4.2.1)."""


class Script(NamedTuple):
    """The facts of a test script that figures depend on."""

    id: str
    """The script."""
    task: str
    """The name of the task."""
    subset: str
    """Which kind of script it is; empty where that is not stated."""
    kind: str
    """Which kind of simulation; empty where that is not stated."""


GROUPS: Mapping[str, Callable[[Script], bool]] = {
    "all": lambda _: True,
    "hard": lambda script: script.subset in HARD,
    LAST_ONLY: lambda script: script.subset == LAST_ONLY,
    FIRST: lambda script: script.subset == FIRST,
    SUBSEQUENT: lambda script: script.subset == SUBSEQUENT,
    STATELESS: lambda script: script.kind == STATELESS,
    STATEFUL: lambda script: script.kind == STATEFUL,
    # The paper's own columns of kinds: they leave out all but the first challenging turn (section 4.2.1).
    f"{FIRST}, {STATELESS}": lambda script: (script.subset, script.kind) == (FIRST, STATELESS),
    f"{FIRST}, {STATEFUL}": lambda script: (script.subset, script.kind) == (FIRST, STATEFUL),
}
"""The groups of scripts, by name."""


class Rated(NamedTuple):
    """The rating of one reply: the mean of its judges', where there are several."""

    script: Script
    """The script."""
    model: str
    """The model that replied."""
    value: float | None
    """The rating. None: every judge abstained."""
    agreements: Sequence[float] = ()
    """How far the repeats of each judge that has some agree (``Rating.measured_confidence``)."""


class Score(NamedTuple):
    """The mean rating of a model on a group of scripts."""

    model: str
    """The model."""
    group: str
    """The group, a key of ``GROUPS``."""
    scripts: int
    """How many scripts the group has."""
    mean: Mean
    """The mean over those that were rated."""
    agreements: Sequence[float] = ()
    """Those of all replies."""


class TaskScore(NamedTuple):
    """How hard a task is: the mean rating over its scripts and all models (section 4.2.3)."""

    task: str
    """The task."""
    kind: str
    """Its kind."""
    mean: Mean
    """The mean."""


@dataclass
class PairCount:
    """How often one model's reply was preferred to another's."""

    win: int = 0
    """The first model's was."""
    tie: int = 0
    """Neither was, or the orders disagreed."""
    lose: int = 0
    """The second model's was."""
    abstained: int = 0
    """No judgement was reached."""


def aced_scripts(ratings: Iterable[Rated]) -> frozenset[str]:
    """The scripts that every model aces (``dramaturg.results.dialogues.is_aced``)."""
    values: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for rated in ratings:
        values[rated.script.id][rated.model] = rated.value
    return frozenset(name for name, found in values.items() if is_aced(found))


def scores(ratings: Sequence[Rated]) -> Sequence[Score]:
    """The mean ratings, by model in the order met, then by group; groups without scripts are left out."""
    found = []
    for model in dict.fromkeys(rated.model for rated in ratings):
        mine = [rated for rated in ratings if rated.model == model]
        for group, holds in GROUPS.items():
            held = [rated for rated in mine if holds(rated.script)]
            if held:
                judged = [rated.value for rated in held if rated.value is not None]
                agreements = [one for rated in held for one in rated.agreements]
                found.append(Score(model, group, len(held), mean_of(judged, LOWEST, HIGHEST), agreements))
    return found


def task_scores(ratings: Iterable[Rated]) -> Sequence[TaskScore]:
    """The tasks that were rated, the hardest first."""
    values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for rated in ratings:
        if rated.value is not None:
            values[rated.script.task, rated.script.kind].append(rated.value)
    found = [TaskScore(*key, mean_of(judged, LOWEST, HIGHEST)) for key, judged in values.items()]
    return sorted(found, key=lambda one: (one.mean.value or 0.0, one.task))


def pair_counts(
    compared: Iterable[tuple[Script, str, str, str, str]],
) -> Mapping[tuple[str, str, str, str], PairCount]:
    """Counts comparisons by first model, second model, judge and group ("all" or "hard").

    Args:
        compared: Script, first model, second model, judge, and "win", "tie", "lose" or "abstained" for the
            first model.
    """
    counts: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for script, first, second, judge, outcome in compared:
        for group in ("all", "hard"):
            if GROUPS[group](script):
                counts[first, second, judge, group][outcome] += 1
    return {key: PairCount(**count) for key, count in counts.items()}
