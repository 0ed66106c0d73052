"""``dramaturg labels align aggregate`` and ``verdicts``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import accuracy_pb2, agreement_pb2
from dramaturg.api.alignment.v1 import aggregation_pb2 as pb
from dramaturg.cli.align.options import WHOLE, Asked, File, Resampled, interval_methods, shown
from dramaturg.cli.align.table import MORE_THAN_HALF, Majority, Rows, TieLabel, add_annotations, read_labels
from dramaturg.cli.options import takes_groups
from dramaturg.cli.output_files import write_json_lines
from dramaturg.cli.platform import fail
from dramaturg.cli.tables import number
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.files import read_results
from dramaturg.results.quantities import counted
from dramaturg.results.rows import judgements
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.summaries.labels import AmbiguousLabelsError, HumanLabels, LabelJoin
from dramaturg.tables.comparison import policy_name
from dramaturg.tables.model import Table, columns

UNEXAMINED = 3
"""The number of annotators of whom nothing shows whether they err together."""
UNSEEN = "errors in common cannot be seen with three annotators: compare with labels of people"


@takes_groups
def aggregate(
    file: File,
    asked: Asked,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", dir_okay=False, help="File for the items' labels."),
    ] = None,
) -> None:
    """Estimates the right label of each item and the quality of each annotator (Dawid and Skene 1979).

    Rows have the columns "item", "annotator" and "label". Annotators are weighted by how well they agree with
    the estimated labels, and those who err together share their weight; judges can be annotators too. Ties of
    votes are counted. Where the labels do not say how good each annotator is, there are majorities alone.

    Example: dramaturg labels align aggregate labels.csv --out right.jsonl
    """
    agreement = agreement_pb2.MeasureAgreementRequest()
    left_out = add_annotations(agreement, Rows.read(file).one_label_a_row())
    request = pb.AggregateLabelsRequest(items=agreement.items)
    response = asked.call(lambda stub: stub.AggregateLabels(request))
    items = [
        {
            "item": one.id,
            "label": one.label,
            "probability": one.probabilities[one.label] if one.label else None,
            "majority": list(one.majority),
        }
        for one in response.items
        if one.majority
    ]
    if out is not None:
        write_json_lines(out, items)
    annotators = [
        {
            "annotator": one.annotator,
            "items": one.item_count,
            "accuracy": one.accuracy,
            "consensus_share": one.consensus_share,
            "vote_weight": one.vote_weight,
        }
        for one in response.annotators
    ]
    ties = sum(len(one.majority) > 1 for one in response.items)
    table = Table(
        "", columns("annotator", figures=("accuracy", "gives the estimated label", "weight", "items"))
    )
    for quality in response.annotators:
        table.add_row(
            quality.annotator,
            number(quality.accuracy),
            number(quality.consensus_share),
            number(quality.vote_weight),
            str(quality.item_count),
        )
    shares = Table("", columns("label", figures=("estimated share",)))
    for label, share in sorted(response.prior.items()):
        shares.add_row(label, number(share))
    together = Table("", columns("err together", "and", figures=("correlation of errors", "items")))
    for pair in response.dependent_pairs:
        together.add_row(pair.first, pair.second, number(pair.error_correlation), str(pair.item_count))
    found = {
        "unidentified": response.unidentified,
        "effective_annotators": response.effective_annotator_count,
        "dependent_pairs": [
            {
                "first": pair.first,
                "second": pair.second,
                "items": pair.item_count,
                "error_correlation": pair.error_correlation,
            }
            for pair in response.dependent_pairs
        ],
        "converged": response.converged,
        "iterations": response.iteration_count,
        "prior": dict(sorted(response.prior.items())),
        "ties": ties,
        "annotators": annotators,
        "items": items,
    }
    notes = [f"{len(items)} items, {ties} with a tie of votes"]
    if response.unidentified:
        notes.append(f"no labels but the majority: {response.unidentified}; use labels of people")
    elif not response.converged:
        notes.append("not converged")
    worth = f"worth {response.effective_annotator_count:.3g} independent annotators"
    if response.dependent_pairs:
        notes.append(worth)
    if response.annotators and response.effective_annotator_count <= UNEXAMINED:
        notes.append(UNSEEN)
    tables = [one for one in (table, shares, together) if one.rows]
    asked.show(found, (*tables, "; ".join(notes)), left_out, then=("labels", "align", "labels", file))


_CRITERION, _SAMPLE = "criterion", "sample"
_FIGURES = (
    "accuracy",
    "balanced_accuracy",
    "macro_precision",
    "macro_f1",
    "mean_squared_error",
    "cohen_kappa",
)
_OUTCOMES = {True: "PASS", False: "FAIL", None: ""}


@takes_groups
def verdicts(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            exists=True,
            help='Results of scripts or texts that "eval" wrote: the folder, or results.jsonl.',
        ),
    ],
    labels: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Labels of people: item, criterion, annotator and label, PASS or FAIL.",
        ),
    ],
    asked: Resampled,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=CRITERION,...",
            help="A named set of criteria to measure together; repeatable.",
        ),
    ] = None,
    majority: Majority = MORE_THAN_HALF,
    tie_label: TieLabel = "",
) -> None:
    """Measures how often verdicts agree with the labels of people, for each criterion and for named sets.

    An item is TASK/CANDIDATE, or the candidate's id alone. A label of several candidates is refused with
    their ids. Every figure is computed under three policies of abstentions: excluded, wrong, worst-case.
    Items of one task are taken together in the intervals. PASS is 1 and FAIL is 0 for the mean squared error.

    Example: dramaturg labels align verdicts out/demo --labels labels.csv --set six=executable,order_correct
    """
    gold = read_labels(labels, majority, tie_label, asked.target)
    request = accuracy_pb2.MeasureAccuracyRequest(
        groupings=[accuracy_pb2.Grouping(), accuracy_pb2.Grouping(tags=[_CRITERION])],
        subsets=[_subset(one) for one in sets or []],
        macro_tag=_CRITERION,
        cluster_tag=_SAMPLE,
        **asked.request,
    )
    left_out = [*gold.left_out, *_add(request, results, gold)]
    response = asked.call(lambda stub: stub.MeasureAccuracy(request))
    # A criterion by itself has no named sets.
    groups = [one for one in response.groups if not one.tags or one.subset == "all"]
    asked.show(
        {"groups": [_group(one) for one in groups]},
        _tables(groups),
        left_out,
        interval_methods(response),
        then=("labels", "align", "cascade", results, "--role", "ROLE", "--first", "NAME", "--last", "NAME"),
    )


def _add(request: accuracy_pb2.MeasureAccuracyRequest, results: Path, gold: HumanLabels) -> list[str]:
    unlabelled = failed = 0
    join = LabelJoin(gold)
    try:
        for sample in read_results(results):
            failed += sample.WhichOneof("result") is None
            for one in judgements(sample):
                label = join.of(str(sample.index + 1), one.sample, one.subject, one.aspect)
                if label is None or isinstance(one.value, float):
                    unlabelled += 1
                    continue
                request.items.add(
                    gold=_OUTCOMES[label],
                    predicted=_OUTCOMES[one.value],
                    abstain_reason=one.reason,
                    tags={_CRITERION: one.aspect, _SAMPLE: one.sample},
                )
        join.check()
    except (AmbiguousLabelsError, LineError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    if not request.items:
        fail(f"{results}: no verdict has a label; an item is TASK/CANDIDATE or the candidate's id")
    found = {
        f"{unlabelled} verdicts without a label of people": unlabelled,
        f"{gold.undecided} items that people are undecided on": gold.undecided,
        f"{failed} samples without a result": failed,
    }
    if join.unused:
        item, criterion = join.unused[0]
        named = f"{item}, {criterion}" if criterion else item
        found[f"{counted(len(join.unused), 'label')} without a verdict, such as that of {named}"] = 1
    return [words for words, count in found.items() if count]


def _subset(written: str) -> accuracy_pb2.Subset:
    name, _, criteria = written.partition("=")
    values = [one.strip() for one in criteria.split(",") if one.strip()]
    if not name.strip() or not values:
        raise typer.BadParameter(f"{written!r} is not NAME=CRITERION,...", param_hint="--set")
    return accuracy_pb2.Subset(name=name.strip(), tag=_CRITERION, values=values)


def _group(group: accuracy_pb2.AccuracyGroup) -> Mapping[str, Any]:
    return {
        "criterion": group.tags.get(_CRITERION, ""),
        "set": group.subset,
        "criteria": list(group.subset_values),
        "missing_criteria": list(group.missing_values),
        "items": group.item_count,
        "answered": group.answered_count,
        "clusters": group.cluster_count,
        "abstentions": {
            name.removeprefix("ABSTAIN_REASON_"): count for name, count in sorted(group.abstentions.items())
        },
        **figures(group, ("majority_baseline",)),
        "policies": {policy_name(one.policy): _policy(one) for one in group.policies},
    }


def _policy(policy: accuracy_pb2.PolicyFigures) -> Mapping[str, Any]:
    return {
        **rests_on(policy.accuracy),
        **figures(policy, (*_FIGURES, "macro_mean_squared_error")),
        "labels": {one.label: figures(one, ("precision", "recall", "f1")) for one in policy.labels},
    }


def _tables(groups: Sequence[accuracy_pb2.AccuracyGroup]) -> Iterator[Table | str]:
    heads = ("accuracy", "balanced", "precision", "F1", "MSE", "kappa", "n")
    table = Table("", columns("criteria", "abstentions", figures=heads))
    for group in groups:
        named = "" if group.subset == "all" else f"{group.subset} ({len(group.subset_values)} criteria)"
        for policy in group.policies:
            table.add_row(
                named or group.tags.get(_CRITERION, "") or WHOLE,
                policy_name(policy.policy),
                *(shown(getattr(policy, figure)) for figure in _FIGURES),
                f"{policy.accuracy.count}/{policy.accuracy.total}",
            )
    yield table
    for group in groups:
        if group.missing_values:
            yield f"{group.subset}: no item of {', '.join(group.missing_values)}"
