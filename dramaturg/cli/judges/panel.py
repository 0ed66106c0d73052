"""``dramaturg judges panel`` and ``weights``: panels that a running gateway keeps, and weights for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from dramaturg.api.alignment.v1 import accuracy_pb2, aggregation_pb2
from dramaturg.api.alignment.v1.agreement_pb2 import AnnotatedItem, Annotation
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    PANEL_RULE_CASCADE,
    Judge,
    PanelMember,
    PanelRule,
)
from dramaturg.cli.align.options import Asked
from dramaturg.cli.align.table import MORE_THAN_HALF, Majority, TieLabel, read_labels
from dramaturg.cli.align.verdicts import UNEXAMINED, UNSEEN
from dramaturg.cli.judges.registration import Description, Name, describe_registration, named, show_answer
from dramaturg.cli.options import AsJson, takes_groups
from dramaturg.cli.platform import fail
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunTarget
from dramaturg.cli.tables import number
from dramaturg.cli.terminal import tell_next
from dramaturg.client import DramaturgClient
from dramaturg.datasets.json_lines import LineError
from dramaturg.formats.rubric import PanelWeightsError, read_weights, weight_of, write_weights
from dramaturg.results.files import read_results
from dramaturg.summaries.labels import AmbiguousLabelsError, LabelJoin
from dramaturg.tables.model import SHARES, Column, Table, columns, estimate_cell, percent_of

weights_app = typer.Typer()

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


@weights_app.command("weights")
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


_LEAST_WEIGHT = 0.01
"""The weight of a judge that is right no more often than not. Weights are positive."""


def _weight_of_accuracy(correct: float, count: int) -> float:
    """The weight of a judge that was right on some of its items: the logarithm of its odds.

    For judges that err independently these weights make the weighted majority the most probable verdict
    (Nitzan and Paroush 1982). The accuracy is (correct + 1) / (count + 2), which is never 0 or 1.

    Args:
        correct: The number of items on which it was right; an estimate may be a fraction.
        count: The number of its items.
    """
    accuracy = (correct + 1) / (count + 2)
    return max(_LEAST_WEIGHT, math.log(accuracy / (1 - accuracy)))


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
            _weight_of_accuracy(one.correct_count, one.item_count),
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
            one.vote_weight * _weight_of_accuracy(one.accuracy * one.item_count, one.item_count),
        )
        for one in response.annotators
    ]


app = typer.Typer(no_args_is_help=True)


class Rule(StrEnum):
    """How the votes of a panel become one verdict."""

    MAJORITY = "majority"
    UNANIMOUS = "unanimous"
    ANY_FAIL = "any-fail"
    MEAN = "mean"
    WEIGHTED = "weighted"
    CASCADE = "cascade"


@dataclass(frozen=True)
class Panel(Description):
    """The options of a panel."""

    member: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A judge of the role, as NAME[@MODEL][=NUMBER]; repeatable. The number is its weight; in a "
            "cascade the confidence from which on its verdict stands, for all but the last.",
        ),
    ] = None
    rule: Annotated[Rule | None, typer.Option(help="How votes become one verdict. Default: majority.")] = None
    quorum: Annotated[
        int | None, typer.Option(min=1, help="The least number of votes. Default: more than half.")
    ] = None
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help='A file of "judges weights" with all members.'
        ),
    ] = None


@app.command("add")
@takes_groups
def add(judge: Name, panel: Panel, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Registers a panel of judges for your tenant at a running gateway, and shows its health.

    For example:

        dramaturg judges panel add critic=trio --member llm --member theirs --member offline --quorum 2

        dramaturg judges panel add critic=duo --member llm=2 --member theirs@gpt-4o --rule weighted

        dramaturg judges panel add critic=steps --member small=0.9 --member large --rule cascade
    """
    made = named(judge)
    describe_registration(made, panel)
    if not panel.member:
        fail("name the members with --member")
    made.panel.rule = _rule(panel.rule or (Rule.WEIGHTED if panel.weights else Rule.MAJORITY))
    made.panel.members.extend(_members(panel, made.panel.rule))
    made.panel.quorum = panel.quorum or 0
    show_answer(target, lambda client: client.register_judge(made), as_json=as_json)
    tell_next("eval", "FILE", "--judge", judge, "--target", target)


@app.command("update")
@takes_groups
def update(judge: Name, panel: Panel, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Changes a panel that was registered. What no option names stays as it is; members change together.

    For example:

        dramaturg judges panel update critic=trio --rule unanimous --quorum 3
    """
    made = named(judge)
    paths = describe_registration(made, panel)
    if panel.weights and not panel.member:
        fail("--weights needs all members: name them with --member")
    if not paths and not panel.member and not panel.rule and not panel.quorum:
        fail("nothing to change: name an option")

    async def work(client: DramaturgClient) -> Judge:
        # The contract has no panel without members: what stays as it is is sent again.
        found = await client.check_judge(made.role, made.name)
        made.panel.CopyFrom(found.registration.panel)
        if panel.rule:
            made.panel.rule = _rule(panel.rule)
        if panel.member:
            del made.panel.members[:]
            made.panel.members.extend(_members(panel, made.panel.rule))
        if panel.quorum:
            made.panel.quorum = panel.quorum
        return await client.update_judge(made, [*paths, "panel"])

    show_answer(target, work, as_json=as_json)
    tell_next("eval", "FILE", "--judge", judge, "--target", target)


def _rule(rule: Rule) -> PanelRule.ValueType:
    return PanelRule.Value(f"PANEL_RULE_{rule.upper().replace('-', '_')}")


def _members(panel: Panel, rule: PanelRule.ValueType) -> list[PanelMember]:
    number = "threshold" if rule == PANEL_RULE_CASCADE else "weight"
    members = [_member(text, number) for text in panel.member or ()]
    if panel.weights is None:
        return members
    if any(one.weight for one in members):
        fail("--weights and weights of members exclude each other")
    try:
        weights = read_weights(panel.weights)
    except PanelWeightsError as error:
        fail(str(error))
    for one in members:
        weight = weight_of(weights, one.judge, one.model)
        if weight is None:
            fail(f"{panel.weights} has no weight of {one.judge}")
        one.weight = weight
    return members


def _member(text: str, number: str) -> PanelMember:
    name, equals, written = text.partition("=")
    judge, _, model = name.partition("@")
    try:
        value = float(written) if equals else 0.0
    except ValueError:
        value = -1.0
    if not judge or (equals and not value > 0):
        fail(f"--member {text!r} is not of the form NAME[@MODEL][={number.upper()}]")
    made = PanelMember(judge=judge, model=model)
    setattr(made, number, value)
    return made
