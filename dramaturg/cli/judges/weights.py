"""``dramaturg judges weights``: weights for panels by the measured accuracy of judges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from dramaturg.api.alignment.v1 import accuracy_pb2, aggregation_pb2
from dramaturg.api.alignment.v1.agreement_pb2 import AnnotatedItem, Annotation
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.cli.align.aggregate import UNEXAMINED, UNSEEN
from dramaturg.cli.align.labels import MORE_THAN_HALF, Majority, TieLabel, read_labels
from dramaturg.cli.align.options import Asked
from dramaturg.cli.cells import number
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.platform import fail
from dramaturg.datasets.json_lines import LineError
from dramaturg.formats.panel_weights import write_weights
from dramaturg.results.files import read_results
from dramaturg.summaries.labels import AmbiguousLabelsError, LabelJoin
from dramaturg.summaries.panel_weights import weight_of_accuracy
from dramaturg.tables.cells import SHARES, estimate_cell, percent_of
from dramaturg.tables.model import Column, Table, columns

app = typer.Typer()

_LABELS = {OUTCOME_PASS: "PASS", OUTCOME_FAIL: "FAIL"}
_JUDGE, _SAMPLE = "judge", "sample"


class _Vote(NamedTuple):
    row: int
    sample: str
    subject: str
    criterion: str
    judge: str
    label: str
    """PASS or FAIL."""


class _Weight(NamedTuple):
    judge: str
    items: int
    accuracy: Any
    """An estimate; absent by Dawid and Skene's model, which has no interval."""
    share: float
    weight: float


@app.command("weights")
@takes_groups
def weights(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            exists=True,
            help="Results with several judges of the role: a folder, or results.jsonl.",
        ),
    ],
    role: Annotated[str, typer.Option(metavar="ROLE", help="The role of the judges.")],
    asked: Asked,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Labels of people.",
        ),
    ] = None,
    majority: Majority = MORE_THAN_HALF,
    tie_label: TieLabel = "",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", dir_okay=False, help="File for the weights, for panels."),
    ] = None,
) -> None:
    """Computes weights for a weighted panel from the measured accuracy of judges.

    With --labels the accuracy is that against people (AlignmentService.MeasureAccuracy); abstentions are left
    out. Without, it is estimated from the verdicts of at least three judges alone (Dawid and Skene 1979,
    AlignmentService.AggregateLabels), if those say how good each is. The weight is the logarithm of the odds
    of being right, at least 0.01; without labels judges that err together share theirs. Shadows are judges
    too.

    For example:

        dramaturg judges weights out/trio --role critic --labels labels.csv --out weights.toml
    """
    try:
        votes = [vote for vote in _votes(results) if vote[0] == role]
    except LineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    given = [vote for _, vote in votes]
    if not given:
        fail(f"{results}: no judge of the role {role!r} gave PASS or FAIL")
    left_out: list[str] = []
    notes: list[str] = []
    if labels is None:
        found, how = _estimated(given, asked), "estimated from the verdicts"
        if len(found) <= UNEXAMINED:
            notes.append(UNSEEN)
    else:
        gold = read_labels(labels, majority, tie_label, asked.target)
        join = LabelJoin(gold)
        try:
            found = _measured(given, join, asked)
            join.check()
        except AmbiguousLabelsError as error:
            fail(str(error))
        left_out, how = gold.left_out, "against labels of people"
    if out is not None:
        comment = f"Weights of the role {role} by accuracy {how}: {results}"
        try:
            write_weights(out, {one.judge: one.weight for one in found}, comment)
        except OSError as error:
            fail(f"{out}: {error.strerror or error}")
    table = Table(
        "", columns("judge", figures=("items", Column(f"accuracy {how}", interval=SHARES), "weight"))
    )
    for one in found:
        table.add_row(
            one.judge,
            str(one.items),
            percent_of(one.share) if one.accuracy is None else estimate_cell(one.accuracy),
            number(one.weight),
        )
    rows = [
        {"judge": one.judge, "items": one.items, "accuracy": one.share, "weight": one.weight} for one in found
    ]
    asked.show(
        {"role": role, "accuracy": how, "weights": rows, "notes": notes},
        (table, *notes),
        left_out,
        then=("judges", "panel", "add", f"{role}=NAME", "--weights", out or "weights.toml"),
    )


def _votes(results: Path) -> Iterator[tuple[str, _Vote]]:
    """The verdicts of every judge and shadow, with its role."""
    for sample in read_results(results):
        name = sample.WhichOneof("result")
        if name not in {"scripts", "texts"}:
            continue
        result = getattr(sample, name)
        task = result.task.id or result.task.goal
        for one in result.candidates if name == "scripts" else result.texts:
            subject = one.candidate_id if name == "scripts" else one.text_id
            for assessed in (*one.assessments, *one.shadows):
                for verdict in assessed.assessment.verdicts:
                    if label := _LABELS.get(verdict.outcome):
                        vote = _Vote(sample.index, task, subject, verdict.criterion, assessed.judge, label)
                        yield assessed.role, vote


def _measured(votes: list[_Vote], join: LabelJoin, asked: Asked) -> list[_Weight]:
    request = accuracy_pb2.MeasureAccuracyRequest(
        groupings=[accuracy_pb2.Grouping(tags=[_JUDGE])],
        cluster_tag=_SAMPLE,
        confidence_level=asked.level,
    )
    for vote in votes:
        label = join.of(str(vote.row + 1), vote.sample, vote.subject, vote.criterion)
        if label is not None:
            request.items.add(
                gold="PASS" if label else "FAIL",
                predicted=vote.label,
                tags={_JUDGE: vote.judge, _SAMPLE: vote.sample},
            )
    if not request.items:
        fail("no verdict has a label; an item is TASK/CANDIDATE or the candidate's id")
    response = asked.call(lambda stub: stub.MeasureAccuracy(request))
    return [
        _Weight(
            one.tags[_JUDGE],
            one.item_count,
            one.accuracy,
            one.accuracy.value,
            weight_of_accuracy(one.correct_count, one.item_count),
        )
        for one in response.groups
        if one.subset == "all"
    ]


def _estimated(votes: list[_Vote], asked: Asked) -> list[_Weight]:
    items: dict[tuple[int, str, str], AnnotatedItem] = {}
    for vote in votes:
        key = vote.row, vote.subject, vote.criterion
        item = items.setdefault(key, AnnotatedItem(id=f"{vote.row}/{vote.subject}/{vote.criterion}"[:500]))
        item.annotations.append(Annotation(annotator=vote.judge, labels=[vote.label]))
    request = aggregation_pb2.AggregateLabelsRequest(items=items.values())
    response = asked.call(lambda stub: stub.AggregateLabels(request))
    if response.unidentified:
        fail(f"{response.unidentified}: use labels of people (--labels)", code=1)
    if not response.converged:
        fail("the estimate did not converge: use labels of people (--labels)", code=1)
    return [
        _Weight(
            one.annotator,
            one.item_count,
            None,
            one.accuracy,
            one.vote_weight * weight_of_accuracy(one.accuracy * one.item_count, one.item_count),
        )
        for one in response.annotators
    ]
