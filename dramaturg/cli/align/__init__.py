"""``dramaturg labels align``: correlation with human labels, and agreement of annotators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.alignment.v1 import agreement_pb2, correlation_pb2
from dramaturg.cli.align import calibration, options, preferences, verdicts
from dramaturg.cli.align.options import Cluster, File, GroupBy, Resampled
from dramaturg.cli.align.table import (
    DISTANCES,
    MORE_THAN_HALF,
    Epsilon,
    Judge,
    Majority,
    Rows,
    TieLabel,
    add_annotations,
    add_scores,
    group_column,
    rule_named,
)
from dramaturg.cli.options import takes_groups
from dramaturg.summaries.estimates import agreement, correlations

__all__ = ["app"]

app = typer.Typer(help="Measures how far scores and labels agree with people.", no_args_is_help=True)


@app.command()
@takes_groups
def scores(
    file: File,
    asked: Resampled,
    cluster: Cluster = "",
    group_by: GroupBy = "",
    system: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="Column of systems: correlates their means too."),
    ] = "",
) -> None:
    """Correlates every numeric column with the column "human".

    Prints Pearson's r, Spearman's rho and Kendall's tau-b with intervals, the number of rows that they rest
    on, and for every two columns Williams' test and the difference of their taus. With --cluster, intervals
    treat the rows of a cluster as one unit, and the mean of the correlations within clusters is printed (the
    summary level); with --system also the correlation of the systems' means (the system level).

    Example: dramaturg labels align scores scores.jsonl --cluster document --system model
    """
    rows, tags = Rows.read(file), [name for name in (cluster, group_by, system) if name]
    rows.require(cluster, option="--cluster")
    rows.require(group_by, option="--group-by")
    rows.require(system, option="--system")
    request = correlation_pb2.CorrelateScoresRequest(
        cluster_tag=cluster, group_tag=group_by, system_tag=system, **asked.request
    )
    left_out = add_scores(request, rows, tags)
    response = asked.call(lambda stub: stub.CorrelateScores(request))
    asked.show(
        correlations(response),
        options.correlation_tables(response),
        left_out,
        options.interval_methods(response),
        then=("labels", "align", "ranks", file),
    )


@app.command()
@takes_groups
def labels(
    file: File,
    asked: Resampled,
    distance: Annotated[
        str, typer.Option(help=f"Label distance of Krippendorff's alpha: {', '.join(DISTANCES)}.")
    ] = "nominal",
    group_by: Annotated[
        str, typer.Option(help="Column of groups. Default: criterion or group, where there is one.")
    ] = "",
    cluster: Cluster = "",
    majority: Majority = MORE_THAN_HALF,
    tie_label: TieLabel = "",
    majorities: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", dir_okay=False, help="File for the majority label of each item."),
    ] = None,
    judge: Judge = "",
    epsilon: Epsilon = 0.2,
) -> None:
    """Measures how far annotators agree, from rows with the columns "item", "annotator" and "label".

    A label that is a list is a set; in CSV, with the distance "masi", its parts are separated by "|". An item
    that is labelled by several criteria counts as one item for each. --judge tests whether that annotator may
    take the place of the others (Calderon et al. 2025).

    Examples:
        dramaturg labels align labels labels.csv --distance ordinal

        dramaturg labels align labels labels.csv --judge gpt-4 --epsilon 0.15
    """
    if distance not in DISTANCES:
        raise typer.BadParameter(f"{distance!r} is none of {', '.join(DISTANCES)}", param_hint="--distance")
    rows = Rows.read(file).one_label_a_row()
    rows.require(group_by, option="--group-by")
    rows.require(cluster, option="--cluster")
    request = agreement_pb2.MeasureAgreementRequest(
        distance=DISTANCES[distance],
        group_tag=group_by or group_column(rows),
        **asked.request,
        cluster_tag=cluster,
        majority_rule=rule_named(majority),
        tie_label=tie_label,
        list_majorities=majorities is not None,
        judge=judge,
        epsilon=epsilon,
    )
    left_out = add_annotations(request, rows)
    response = asked.call(lambda stub: stub.MeasureAgreement(request))
    if majorities is not None:
        options.write_majorities(response, request.group_tag, majorities)
    groups = [agreement(group) for group in response.groups]
    asked.show(
        {"distance": distance, "groups": groups},
        options.agreement_tables(response),
        left_out,
        options.interval_methods(response),
        then=("labels", "align", "aggregate", file),
    )


app.command("estimate")(calibration.estimate)
app.command("preferences")(preferences.preferences)
app.command("aggregate")(verdicts.aggregate)
app.command("verdicts")(verdicts.verdicts)
app.command("calibration")(calibration.calibration)
app.command("cascade")(calibration.cascade)
app.command("bias")(preferences.bias)
app.command("ranks")(preferences.ranks)
