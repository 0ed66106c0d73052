"""Runs: folders of results that the evaluate commands wrote, item by item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dramaturg.api.alignment.v1.compare_pb2 import CompareRunsRequest, SystemOutcome
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.kinds import find_kind
from dramaturg.results.files import read_results
from dramaturg.results.kind import Comparability, Judgement
from dramaturg.results.setups import Setup, setup_of
from dramaturg.summaries.labels import AmbiguousLabelsError, HumanLabels, LabelJoin

CRITERION, SAMPLE = "criterion", "sample"
"""The tags that items get: what they are grouped by, and what they are drawn as wholes by."""

Key = tuple[str, str, str]
"""The sample, what of it was judged, and by what."""


class RunsError(ValueError):
    """Runs that cannot be compared; the message says why."""


@dataclass
class Run:
    """One run."""

    name: str
    items: dict[Key, Judgement] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    """The samples that have no result."""
    setups: set[Setup] = field(default_factory=set)
    """The judges that judged."""
    kind: str = ""
    """The member of ``RunSample.result``."""

    @property
    def comparability(self) -> Comparability:
        """How its results are compared. It has items, so it is known."""
        kind = find_kind(self.kind)
        assert kind is not None
        assert kind.results.comparability is not None
        return kind.results.comparability


def read_run(path: Path, name: str, *, by_sample: bool) -> Run:
    """Reads the results of a folder, or of one file.

    Args:
        path: The folder or file.
        name: What the run is called.
        by_sample: Whether a sample has one judged item, regardless of its name, such as the script of the
            one model that the run is of.

    Raises:
        RunsError: There are no results, a sample has no id, or something was judged twice.
        LineError: A line is no result.
        OSError: A file cannot be read.
    """
    return read_samples(read_results(path), name, by_sample=by_sample)


def read_samples(samples: Iterable[RunSample], name: str, *, by_sample: bool) -> Run:
    """Reads the samples of a run. Arguments and errors are those of ``read_run``."""
    run = Run(name)
    for sample in samples:
        _add(run, sample, by_sample=by_sample)
    if not run.items:
        raise RunsError(f"{name}: has no results with anything to be compared")
    return run


def comparison(runs: Sequence[Run], gold: HumanLabels | None) -> tuple[CompareRunsRequest, list[str]]:
    """The items of all runs as a request, and in words the items that are in no figure.

    A sample that failed in a run is an abstention on all that the other runs have of it.

    Args:
        runs: The runs, the baseline first.
        gold: People's labels: then it is compared how often verdicts agree with them, not what they are.

    Raises:
        RunsError: The runs are of different evaluations, or no item is in two of them.
    """
    kinds = {run.kind for run in runs}
    if len(kinds) > 1:
        raise RunsError(f"the runs are of different evaluations: {', '.join(sorted(kinds))}")
    comparability = runs[0].comparability
    if gold is not None and not comparability.labelled:
        raise RunsError(
            "labels of people are for verdicts on scripts and texts; other results hold their right answers"
        )
    request = CompareRunsRequest(baseline=runs[0].name)
    # Verdicts and scores of one rubric are compared as scores: a request has one of them.
    scored = gold is None and any(isinstance(one.value, float) for run in runs for one in run.items.values())
    if scored and comparability.scale is not None:
        request.lowest_score, request.highest_score = comparability.scale
    unlabelled = 0
    join = None if gold is None else LabelJoin(gold)
    keys = sorted({key for run in runs for key in run.items})
    for key in keys:
        label = None if join is None else _label(runs, key, join)
        if join is not None and label is None:
            unlabelled += 1
            continue
        item = request.items.add(id="/".join(filter(None, key)), tags={CRITERION: key[2], SAMPLE: key[0]})
        for run in runs:
            if key in run.items:
                _set(item.outcomes[run.name], run.items[key], label, scored=scored)
            elif key[0] in run.failed:
                item.outcomes[run.name].SetInParent()
    try:
        if join is not None:
            join.check()
    except AmbiguousLabelsError as error:
        raise RunsError(str(error)) from error
    if not any(len(item.outcomes) > 1 for item in request.items):
        raise RunsError(
            "no item is in two of the runs: they judged other samples, or candidates of other names "
            "(then try --match sample)"
        )
    left_out = [f"{unlabelled} items without a label of people"] if unlabelled else []
    return request, left_out + _failures(runs)


def outcome_flips(runs: Sequence[Run]) -> Iterator[tuple[Run, Key, Judgement, Judgement]]:
    """The items that are judged otherwise than in the baseline: run, item, and both judgements, in order.

    Args:
        runs: The runs, the baseline first.
    """
    baseline = runs[0]
    for run in runs[1:]:
        for key in sorted(run.items.keys() & baseline.items.keys()):
            before, after = baseline.items[key], run.items[key]
            if before.value != after.value:
                yield run, key, before, after


def _add(run: Run, sample: RunSample, *, by_sample: bool) -> None:
    kind = sample.WhichOneof("result")
    if kind is None:
        run.failed.add(sample.sample_id)
        return
    run.kind = run.kind or kind
    if kind != run.kind:
        raise RunsError(f"{run.name}: holds results of different evaluations: {run.kind} and {kind}")
    known, result = find_kind(kind), getattr(sample, kind)
    if known is None or known.results.comparability is None:
        return
    results, comparability = known.results, known.results.comparability
    rows = list(results.rows(result, False))
    run.setups.update(map(setup_of, results.answers(result, rows)))
    for one in comparability.judgements(result, rows):
        if not one.sample:
            raise RunsError(f"{run.name}: a sample has no id, so it cannot be found in another run")
        key = one.sample, "" if by_sample else one.subject, one.aspect
        if key in run.items:
            named = f"sample {one.sample!r} has {one.aspect!r} judged twice"
            hint = "; without --match sample its candidates stay apart" if by_sample else ""
            raise RunsError(f"{run.name}: {named}{hint}")
        run.items[key] = one


def _label(runs: Sequence[Run], key: Key, join: LabelJoin) -> bool | None:
    """The label of an item. None: it has none, or a score, which labels PASS and FAIL do not judge."""
    if any(isinstance(run.items[key].value, float) for run in runs if key in run.items):
        return None
    subjects = dict.fromkeys(run.items[key].subject for run in runs if key in run.items)
    labels = (join.of(repr(key[0]), key[0], subject, key[2]) for subject in subjects)
    return next((label for label in labels if label is not None), None)


def _set(outcome: SystemOutcome, one: Judgement, label: bool | None, *, scored: bool) -> None:
    if one.value is None:
        outcome.abstain_reason = one.reason
    elif scored:
        outcome.score = one.value
    else:
        outcome.passed = bool(one.value) if label is None else one.value == label


def _failures(runs: Sequence[Run]) -> list[str]:
    counts: Mapping[str, int] = {run.name: len(run.failed) for run in runs if run.failed}
    return [f"{count} samples of {name} failed and count as abstentions" for name, count in counts.items()]
