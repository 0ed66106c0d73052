"""The review sheet of scenarios: the decisions and labels that people return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.alignment.v1.accuracy_pb2 import Grouping, LabelledItem, MeasureAccuracyRequest
from dramaturg.api.alignment.v1.agreement_pb2 import AnnotatedItem, Annotation, MeasureAgreementRequest
from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice, Decision
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.authoring import ANNOTATOR, EDITED
from dramaturg.service.validation import violations
from dramaturg.summaries.decisions import choice_name
from dramaturg_research.completed_sheets import kept_rows, status_problems

_LEVELS = ("easy", "medium", "hard")
_CHOICES = {
    "1": decision_pb2.CHOICE_OPTION_1,
    "option-1": decision_pb2.CHOICE_OPTION_1,
    "option 1": decision_pb2.CHOICE_OPTION_1,
    "2": decision_pb2.CHOICE_OPTION_2,
    "option-2": decision_pb2.CHOICE_OPTION_2,
    "option 2": decision_pb2.CHOICE_OPTION_2,
    "either": decision_pb2.CHOICE_EITHER,
}
_EITHER = "either"


@dataclass
class Reviewed:
    """What a sheet holds."""

    requests: list[EvaluateDecisionsRequest] = field(default_factory=list)
    """The scenarios that were accepted or edited, tagged "format" and "level"."""
    labels: list[Mapping[str, str]] = field(default_factory=list)
    """For each of those the annotators' labels, by annotator."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Rows by status."""
    problems: list[str] = field(default_factory=list)
    """The problems, each with its line."""


def read_review(rows: Sequence[tuple[int, Mapping[str, str]]]) -> Reviewed:
    """Reads a sheet.

    The right choice of a row is the value of "gold", else the option that the scenario was written for.
    Where it is either, so is the level; else the level is the value of "level". Annotators may have left
    cells empty.

    Args:
        rows: The rows of the sheet, each with the number of its line.
    """
    found = Reviewed()
    for line, row, status in kept_rows(rows, found.statuses):
        problems = list(_problems(row, status))
        if not problems:
            request = _request(row, status)
            problems = [f"{one.field}: {one.description}" for one in violations(request)]
        if problems:
            found.problems += [f"line {line}: {problem}" for problem in problems]
            continue
        found.requests.append(request)
        found.labels.append(
            {
                name.removeprefix(ANNOTATOR): _label(value)
                for name, value in row.items()
                if name.startswith(ANNOTATOR) and value
            }
        )
    return found


def agreement_request(found: Reviewed, resamples: int) -> MeasureAgreementRequest:
    """The request for the annotators' agreement, over all labelled scenarios and by format."""
    return MeasureAgreementRequest(
        items=[
            AnnotatedItem(
                id=request.decision.id,
                annotations=[Annotation(annotator=name, labels=[label]) for name, label in labels.items()],
                tags={"format": request.tags["format"]},
            )
            for request, labels in zip(found.requests, found.labels, strict=True)
            if labels
        ],
        group_tag="format",
        resample_count=resamples,
    )


def accuracy_request(found: Reviewed) -> MeasureAccuracyRequest:
    """The request for the annotators' accuracy, by format and level (Choice-75, Table 4)."""
    return MeasureAccuracyRequest(
        items=[
            LabelledItem(gold=choice_name(request.gold), predicted=label, tags=request.tags)
            for request, labels in zip(found.requests, found.labels, strict=True)
            for label in labels.values()
        ],
        groupings=[Grouping(tags=["format", "level"]), Grouping(tags=["level"]), Grouping()],
    )


def _problems(row: Mapping[str, str], status: str) -> Iterator[str]:
    yield from status_problems(row, status, ("edited_scenario",))
    gold = row.get("gold") or row.get("target", "")
    if gold.casefold() not in _CHOICES:
        yield f"gold: is {gold!r}, none of 1, 2, either"
    elif gold.casefold() != _EITHER and row.get("level", "").casefold() not in _LEVELS:
        yield f"level: is {row.get('level', '')!r}, none of {', '.join(_LEVELS)}"
    for name, value in row.items():
        if name.startswith(ANNOTATOR) and value and value.casefold() not in _CHOICES:
            yield f"{name}: is {value!r}, none of 1, 2, either"


def _request(row: Mapping[str, str], status: str) -> EvaluateDecisionsRequest:
    gold = _CHOICES[(row.get("gold") or row["target"]).casefold()]
    return EvaluateDecisionsRequest(
        decision=Decision(
            id=row.get("id", ""),
            goal=row.get("goal", ""),
            overall_goal=row.get("overall_goal", ""),
            option_1=row.get("option_1", ""),
            option_2=row.get("option_2", ""),
            scenario=row["edited_scenario"] if status == EDITED else row.get("scenario", ""),
        ),
        gold=Choice.ValueType(gold),
        tags={
            "format": row.get("format", ""),
            "level": _EITHER if gold == decision_pb2.CHOICE_EITHER else row["level"].casefold(),
        },
    )


def _label(text: str) -> str:
    return choice_name(_CHOICES[text.casefold()])
