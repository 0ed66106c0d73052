"""``dramaturg labels align aggregate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.alignment.v1 import aggregation_pb2 as pb
from dramaturg.api.alignment.v1 import agreement_pb2
from dramaturg.cli.align.options import Asked, File
from dramaturg.cli.align.table import Rows, add_annotations
from dramaturg.cli.cells import number
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.platform import fail
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
        try:
            out.write_text(
                "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in items), encoding="utf-8"
            )
        except OSError as error:
            fail(f"{out}: {error.strerror or error}")
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
