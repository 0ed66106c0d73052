"""The agreement of judges with each other: those of one run, or several runs as judges of the same items."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import NamedTuple

from dramaturg.api.alignment.v1.agreement_pb2 import (
    LABEL_DISTANCE_INTERVAL,
    LABEL_DISTANCE_NOMINAL,
    LabelDistance,
    MeasureAgreementRequest,
    MeasureAgreementResponse,
)
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import (
    OUTCOME_FAIL,
    OUTCOME_PASS,
    OUTCOME_SCORED,
    AbstainReason,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import (
    AgreeingJudge,
    MeasureJudgeAgreementRequest,
    MeasureJudgeAgreementResponse,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.results.names import abstention_name
from dramaturg.results.rows import flatten, judgements
from dramaturg.service.errors import ServiceError, invalid, too_large
from gateway.evaluations.statistics import Statistics

MAX_ITEMS = 200_000
"""The most items of one request to AlignmentService, and of what is kept of several runs."""
_TASK, _CRITERION = "task", "criterion"
_LEAST_JUDGES = 2
_LONGEST_NAME = 200


class _Answer(NamedTuple):
    """A judge's answer on one item."""

    part: str
    """The judged part of the sample."""
    criterion: str
    names: Sequence[str]
    """The name of the judge, then longer ones that differ where it judges the item twice."""
    value: bool | float | None
    """Whether it passed, or its score. None: an abstention."""
    reason: AbstainReason.ValueType


class _Item(NamedTuple):
    """What judges say of one item."""

    task: str
    """Items of one task are not independent."""
    said: dict[str, bool | float | None]
    """By judge. None: an abstention."""

    def decided(self) -> dict[str, bool | float]:
        return {judge: value for judge, value in self.said.items() if value is not None}


class JudgeAgreement:
    """Collects what judges say of the same items. It keeps labels, not texts.

    Args:
        request: The parameters.
    """

    def __init__(self, request: MeasureJudgeAgreementRequest) -> None:
        self._request = request
        self._counts: Counter[str] = Counter()
        self._abstentions: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._items: dict[tuple[str, str, str], _Item] = {}
        """By sample, judged part and criterion."""
        self._single = 0

    def add(self, sample: RunSample) -> None:
        """Adds a sample of a run whose judges are compared.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED: there are too many items.
        """
        own: defaultdict[tuple[str, str], list[_Answer]] = defaultdict(list)
        for answer in _answers(sample):
            own[answer.part, answer.criterion].append(answer)
        task = _task(sample)
        for (part, criterion), answers in own.items():
            item = self._item((str(sample.index), part, criterion), task)
            for judge, answer in zip(_distinct(answers), answers, strict=True):
                self._note(judge, item, answer.value, answer.reason)
            # What one judge alone judged is never judged again.
            if len(item.decided()) < _LEAST_JUDGES:
                del self._items[str(sample.index), part, criterion]
                self._single += 1

    def add_run(self, run_id: str, sample: RunSample, *, by_sample: bool) -> None:
        """Adds a sample of one of several runs, which are compared as judges.

        Args:
            run_id: The run.
            sample: The sample.
            by_sample: Whether a sample has one judged part, regardless of its name.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED: there are too many items. INVALID_ARGUMENT: the run judges an
                item twice.
        """
        for one in judgements(sample):
            task = one.sample or sample.sample_id
            part = "" if by_sample else one.subject
            item = self._item((task, part, one.aspect), task)
            if run_id in item.said:
                raise _judged_twice(run_id, task, part, one.aspect)
            self._note(run_id, item, one.value, one.reason)

    def _item(self, key: tuple[str, str, str], task: str) -> _Item:
        if (item := self._items.get(key)) is None:
            if len(self._items) >= MAX_ITEMS:
                message = f"the runs have more than {MAX_ITEMS:,} items that judges judged"
                raise too_large(message, limit=MAX_ITEMS)
            sample, part, criterion = key
            item = self._items[intern(sample), part, intern(criterion)] = _Item(intern(task), {})
        return item

    def _note(
        self, judge: str, item: _Item, value: bool | float | None, reason: AbstainReason.ValueType
    ) -> None:
        self._counts[judge] += 1
        item.said[judge] = value
        if value is None:
            self._abstentions[judge][abstention_name(reason)] += 1

    def requests(self) -> Mapping[str, MeasureAgreementRequest]:
        """The requests for verdicts and for scores, those with items."""
        made = {
            name: MeasureAgreementRequest(
                group_tag=_CRITERION, cluster_tag=_TASK, distance=distance, resample_count=1
            )
            for name, distance in (("verdicts", LABEL_DISTANCE_NOMINAL), ("scores", self._distance))
        }
        for request in made.values():
            if self._request.HasField("confidence_level"):
                request.confidence_level = self._request.confidence_level
        decided = {key: item.decided() for key, item in self._items.items()}
        scored = {
            key[2]
            for key, said in decided.items()
            if not all(isinstance(value, bool) for value in said.values())
        }
        for key, said in decided.items():
            if len(said) >= _LEAST_JUDGES:
                name = "scores" if key[2] in scored else "verdicts"
                annotated = made[name].items.add(tags={_TASK: self._items[key].task, _CRITERION: key[2]})
                for judge, value in said.items():
                    label = ("FAIL", "PASS")[bool(value)] if name == "verdicts" else f"{value:.12g}"
                    annotated.annotations.add(annotator=judge, labels=[label])
        return {name: request for name, request in made.items() if request.items}

    @property
    def _distance(self) -> LabelDistance.ValueType:
        return self._request.score_distance or LABEL_DISTANCE_INTERVAL

    def response(self, statistics: Statistics) -> MeasureJudgeAgreementResponse:
        """The agreement.

        Raises:
            ServiceError: FAILED_PRECONDITION: AlignmentService does not answer.
        """
        requests = self.requests()
        found: dict[str, MeasureAgreementResponse] = {}
        for name, request in requests.items():
            found[name] = statistics.required_alignment("MeasureAgreement", request)
        single = sum(len(item.decided()) < _LEAST_JUDGES for item in self._items.values())
        return MeasureJudgeAgreementResponse(
            verdicts=found.get("verdicts"),
            scores=found.get("scores"),
            judges=[
                AgreeingJudge(
                    name=name, judgement_count=count, abstentions_by_reason=self._abstentions.get(name)
                )
                for name, count in sorted(self._counts.items())
            ],
            single_count=self._single + single,
        )


def _distinct(answers: Sequence[_Answer]) -> Sequence[str]:
    """The shortest names of the judges of an item that differ; numbered where the longest do not."""
    for length in range(len(answers[0].names)):
        names = [one.names[length] for one in answers]
        if len(set(names)) == len(names):
            return names
    counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        counts[name] += 1
        numbered.append(f"{name[: _LONGEST_NAME - 4]} {counts[name]}" if counts[name] > 1 else name)
    return numbered


def _answers(sample: RunSample) -> Iterator[_Answer]:
    """The answers of every judge of a sample, members of panels included."""
    kind = sample.WhichOneof("result")
    if kind is None:
        return
    result = getattr(sample, kind)
    if kind == "scripts":
        for candidate in result.candidates:
            yield from _assessed(candidate.candidate_id, candidate.assessments)
    elif kind == "texts":
        for text in result.texts:
            yield from _assessed(text.text_id, text.assessments)
    else:
        for row in flatten(sample, texts=False):
            if row.judge:
                yield _of_row(row)


def _task(sample: RunSample) -> str:
    kind = sample.WhichOneof("result")
    task = getattr(getattr(sample, kind), "task", None) if kind else None
    named = getattr(task, "id", "") or getattr(task, "goal", "")
    return str(named or sample.sample_id or sample.index)


def _assessed(part: str, assessments: Iterable[CandidateAssessment]) -> Iterator[_Answer]:
    for one in assessments:
        names = _names(one.judge, one.role, one.assessment.provenance)
        for verdict in one.assessment.verdicts:
            value: bool | float | None = None
            if verdict.outcome in (OUTCOME_PASS, OUTCOME_FAIL):
                value = verdict.outcome == OUTCOME_PASS
            elif verdict.outcome == OUTCOME_SCORED:
                value = float(verdict.score)
            yield _Answer(part, verdict.criterion, names, value, verdict.abstain_reason)


def _of_row(row: RunResult) -> _Answer:
    """The answer of a flat judgement; measures of single judges end with their name."""
    value: bool | float | None = row.value if row.HasField("value") else None
    if value is not None and row.outcome in (OUTCOME_PASS, OUTCOME_FAIL):
        value = row.outcome == OUTCOME_PASS
    return _Answer(
        f"{row.model} {row.candidate_id}",
        row.measure.replace(f"/{row.judge}", ""),
        _names(row.judge, row.role, row.provenance),
        value,
        row.abstain_reason,
    )


def _names(judge: str, role: str, provenance: Provenance) -> Sequence[str]:
    models = [one.answered_model or one.requested_model for one in provenance.completions]
    return judge, f"{role}/{judge}", f"{role}/{judge} ({models[0] if models else ''})"[:_LONGEST_NAME]


def _judged_twice(run_id: str, task: str, part: str, criterion: str) -> ServiceError:
    item = "/".join(name for name in (task, part, criterion) if name)
    return invalid("run_ids", f"{run_id} judges {item!r} twice; ids of tasks must differ")
