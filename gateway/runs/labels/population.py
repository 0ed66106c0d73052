"""The judgements of a run that people can label, and a random sample of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_TASK_CHOICE,
    LABEL_TASK_PREFERENCE,
    LABEL_TASK_RATING,
    LABEL_TASK_REVIEW,
    LABEL_TASK_UNSPECIFIED,
    LABEL_TASK_VERDICT,
    LabelTask,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from dramaturg.authoring.rating_sheet import draw
from dramaturg.results.dialogues import ACED
from dramaturg.service.errors import invalid
from gateway.runs.store.base import RunStore
from gateway.runs.store.tables import sanitize

_PAGE = 1000
_RATINGS = frozenset({"rating", f"rating{ACED}"})
_SECOND = "second"


@dataclass(frozen=True)
class Drawn:
    """A drawn judgement."""

    sample: int
    """The index of the sample."""
    candidate_id: str
    criterion: str
    """The criterion of a verdict or of a rating by a criterion. Empty: none."""
    model: str
    opponent: str
    """The model of the second text of a preference. Empty: none."""
    judged: float | None
    """The value that the judge gave, of a preference for the first text. None: it abstained."""


Reader = Callable[[RunResult], Drawn | None]


def _verdict(row: RunResult) -> Drawn | None:
    is_verdict = row.outcome != verdict_pb2.OUTCOME_UNSPECIFIED
    return _drawn(row, criterion=row.measure) if is_verdict else None


def _criterion_rating(row: RunResult) -> Drawn | None:
    passes = row.outcome in {verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL}
    return None if passes else _drawn(row, criterion=row.measure)


def _reply_rating(row: RunResult) -> Drawn | None:
    return _drawn(row) if row.measure in _RATINGS else None


def _preference(row: RunResult) -> Drawn | None:
    """A comparison, from the row of either text."""
    if not row.measure.startswith("win"):
        return None
    value = row.value if row.HasField("value") else None
    if row.candidate_id == _SECOND:
        return Drawn(row.sample_index, "", "", row.label, row.model, None if value is None else 1 - value)
    return Drawn(row.sample_index, "", "", row.model, row.label, value)


def _decision(row: RunResult) -> Drawn:
    """The decision of any of its judgements."""
    return Drawn(row.sample_index, "", "", "", "", None)


def _graph(row: RunResult) -> Drawn:
    """The graph of any of its measures, from which its edges are taken."""
    return Drawn(row.sample_index, "", "", row.model, "", None)


def _edges(graph: Drawn, sample: RunSample) -> Iterator[Drawn]:
    """The edges of a graph; the value says whether the reference has the edge too."""
    wanted = {(edge.source_id, edge.target_id) for edge in sample.graphs.reference.edges}
    for one in sample.graphs.graphs:
        if sanitize(one.model) != graph.model:
            continue
        for edge in one.graph.edges:
            known = float((edge.source_id, edge.target_id) in wanted) if one.HasField("score") else None
            yield replace(graph, candidate_id=edge_id(edge.source_id, edge.target_id), judged=known)


def edge_id(source: str, target: str) -> str:
    """The id of an edge."""
    return f"{source}->{target}"


def _drawn(row: RunResult, criterion: str = "") -> Drawn:
    value = row.value if row.HasField("value") else None
    return Drawn(row.sample_index, row.candidate_id, criterion, row.model, "", value)


READERS: Mapping[str, Mapping[LabelTask.ValueType, Reader]] = {
    "scripts": {LABEL_TASK_VERDICT: _verdict},
    "texts": {LABEL_TASK_VERDICT: _verdict, LABEL_TASK_RATING: _criterion_rating},
    "pairs": {LABEL_TASK_PREFERENCE: _preference},
    "dialogues": {LABEL_TASK_RATING: _reply_rating, LABEL_TASK_PREFERENCE: _preference},
    "graphs": {LABEL_TASK_VERDICT: _graph},
    "decisions": {LABEL_TASK_CHOICE: _decision},
    "scenarios": {LABEL_TASK_REVIEW: _verdict, LABEL_TASK_CHOICE: _verdict},
}
"""How judgements become items, by kind of evaluation and task. The first task of a kind is its default."""
_UNJUDGED = frozenset({_decision, _graph})
"""Readers of items that are no judgements: they are drawn also where models or measures abstained."""


def task_of(kind: str, task: LabelTask.ValueType) -> LabelTask.ValueType:
    """The task of a label set of a run.

    Raises:
        ServiceError: INVALID_ARGUMENT: runs of the kind have no such items.
    """
    tasks = READERS.get(kind)
    if not tasks:
        raise invalid(
            "run_id", f"names a run of {kind}, which has no items to label: {', '.join(READERS)} have"
        )
    if task == LABEL_TASK_UNSPECIFIED:
        return next(iter(tasks))
    if task not in tasks:
        names = ", ".join(LabelTask.Name(one) for one in tasks)
        raise invalid("task", f"is {LabelTask.Name(task)}; runs of {kind} have {names}")
    return task


class Population:
    """The labelled judgements of a run.

    Args:
        store: The run store.
        run_id: The run.
        where: Selects judgements.
        read: Makes an item of a judgement.

    Attributes:
        count: The number of items, once drawn from.
    """

    def __init__(self, store: RunStore, run_id: str, where: ResultFilter, read: Reader) -> None:
        self.count = 0
        self._store = store
        self._run_id = run_id
        self._where = where
        self._read = read

    def sample(self, size: int, seed: int) -> list[Drawn]:
        """A random sample in random order. Equal arguments draw equal items of an equal run. Blocks."""
        drawn = draw(self.items(), size, seed)
        random.Random(seed).shuffle(drawn)  # noqa: S311 - the order is no secret
        return drawn

    def items(self) -> Iterator[Drawn]:
        """The items, by sample. Blocks."""
        sample, known = -1, set[tuple[str, str, str, str]]()
        for item in self._expanded():
            if item.sample != sample:
                sample, known = item.sample, set()
            # Several methods or both rows of a comparison are one item.
            key = (item.candidate_id, item.criterion, item.model, item.opponent)
            if key not in known:
                known.add(key)
                self.count += 1
                yield item

    def _expanded(self) -> Iterator[Drawn]:
        if self._read is not _graph:
            yield from self._judged()
            return
        for (index, _), graphs in groupby(self._judged(), lambda one: (one.sample, one.model)):
            found = self._store.list_samples(self._run_id, after=index - 1, limit=1)
            if found and found[0].index == index:
                yield from _edges(next(graphs), found[0])

    def _judged(self) -> Iterator[Drawn]:
        where = self._where
        with_abstentions = bool(where.abstain_reasons) or verdict_pb2.OUTCOME_ABSTAIN in where.outcomes
        for row in self._rows():
            missing = row.failure_reason or (
                row.outcome == verdict_pb2.OUTCOME_ABSTAIN and not with_abstentions
            )
            item = None if missing and self._read not in _UNJUDGED else self._read(row)
            if item is not None:
                yield item

    def _rows(self) -> Iterator[RunResult]:
        after = (-1, -1)
        while page := self._store.list_results(
            self._run_id, after=after, limit=_PAGE, where=self._where, numbers_only=True
        ):
            yield from (row for _, row in page)
            after = page[-1][0]
