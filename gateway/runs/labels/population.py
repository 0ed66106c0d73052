"""The judgements of a run that people can label, and a random sample of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.label_service_pb2 import LABEL_TASK_UNSPECIFIED, LabelDraw, LabelTask
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from dramaturg.judge.conversations import Unit
from dramaturg.service.errors import invalid
from gateway.runs.labels.drawn import Drawn, LabelledKind
from gateway.runs.labels.draws import Judged, choose
from gateway.runs.labels.kinds import kind_names, labelled_kind
from gateway.runs.store import RunStore

_PAGE = 1000


def task_of(kind: str, task: LabelTask.ValueType) -> LabelTask.ValueType:
    """The task of a label set of a run.

    Raises:
        ServiceError: INVALID_ARGUMENT: runs of the kind have no such items.
    """
    found = labelled_kind(kind)
    if found is None:
        raise invalid(
            "run_id", f"names a run of {kind}, which has no items to label: {', '.join(kind_names())} have"
        )
    tasks = found.readers
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
        kind: The items of the run's kind.
        task: The question.

    Attributes:
        count: The number of items, once drawn from.
    """

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        where: ResultFilter,
        kind: LabelledKind,
        task: LabelTask.ValueType,
    ) -> None:
        self.count = 0
        self._store = store
        self._run_id = run_id
        self._where = where
        self._kind = kind
        self._read = kind.readers[task]

    def sample(self, draw: LabelDraw.ValueType, size: int, seed: int) -> list[tuple[Drawn, float]]:
        """A random sample in random order, with inclusion probabilities; see ``choose``. Blocks.

        Equal arguments draw equal items of an equal run. The run is read twice, so that a sample of many
        judgements takes little memory.

        Raises:
            ServiceError: INVALID_ARGUMENT: the judgements do not allow the draw.
        """
        values, confidences = array("d"), array("d")
        for item in self.items():
            values.append(np.nan if item.judged is None else item.judged)
            confidences.append(np.nan if item.confidence is None else item.confidence)
        self.count = len(values)
        probabilities = choose(Judged(np.array(values), np.array(confidences)), draw, size, seed)
        drawn = {place: item for place, item in enumerate(self.items()) if place in probabilities}
        return [(drawn[place], probability) for place, probability in probabilities.items() if place in drawn]

    def items(self) -> Iterator[Drawn]:
        """The items, by sample. Blocks."""
        sample, known = -1, set[tuple[str, str, str, str, Unit | None]]()
        for item in self._expanded():
            if item.sample != sample:
                sample, known = item.sample, set()
            # Several methods or both rows of a comparison are one item.
            key = (item.candidate_id, item.criterion, item.model, item.opponent, item.unit)
            if key not in known:
                known.add(key)
                yield item

    def _expanded(self) -> Iterator[Drawn]:
        expand = self._kind.expand
        if expand is None:
            yield from self._judged()
            return
        for index, judged in groupby(self._judged(), lambda one: one.sample):
            sample: RunSample | None = None
            for one in dict.fromkeys(judged):
                if not one.expands:
                    yield one
                    continue
                if sample is None:
                    found = self._store.samples.page(self._run_id, after=index - 1, limit=1)
                    sample = found[0] if found and found[0].index == index else RunSample()
                yield from expand(one, sample)

    def _judged(self) -> Iterator[Drawn]:
        where = self._where
        with_abstentions = bool(where.abstain_reasons) or verdict_pb2.OUTCOME_ABSTAIN in where.outcomes
        for row in self._rows():
            missing = row.failure_reason or (
                row.outcome == verdict_pb2.OUTCOME_ABSTAIN and not with_abstentions
            )
            item = None if missing and not self._kind.unjudged else self._read(row)
            if item is not None:
                yield item

    def _rows(self) -> Iterator[RunResult]:
        after = (-1, -1)
        while page := self._store.results.page(
            self._run_id, after=after, limit=_PAGE, where=self._where, numbers_only=True
        ):
            yield from (row for _, row in page)
            after = page[-1][0]
