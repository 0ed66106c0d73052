"""The command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import agreement_pb2, compare_pb2, plan_pb2
from dramaturg.cli.align.options import Level, call_alignment, print_json
from dramaturg.cli.align.table import DISTANCES, Epsilon, Judge, Rows, add_annotations, group_column
from dramaturg.cli.options import AlignmentTarget, AsJson, LargestTaskLoss
from dramaturg.cli.platform import fail, output
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.files import read_results
from dramaturg.summaries.comparison import SAMPLE, RunsError, comparison, read_run
from dramaturg.tables.model import Table, columns

app = typer.Typer()

_TWO = 2
_ITEM = "item"


@app.command("plan")
def plan(
    pilot: Annotated[
        list[Path],
        typer.Argument(
            metavar="PILOT...",
            exists=True,
            help="Two folders of results, the baseline first; with --half-width a file of labels.",
        ),
    ],
    effect: Annotated[
        float, typer.Option(help="True difference to detect; with --margin the one at which GO is wanted.")
    ] = 0.0,
    margin: Annotated[
        float | None, typer.Option(min=0, help="Margin of the gate. Default: a test of no difference.")
    ] = None,
    largest_task_loss: LargestTaskLoss = None,
    half_width: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Half width of the interval of Krippendorff's alpha; needs labels."),
    ] = None,
    distance: Annotated[
        str, typer.Option(help=f"Label distance of Krippendorff's alpha: {', '.join(DISTANCES)}.")
    ] = "nominal",
    power: Annotated[float, typer.Option(min=0.5, max=0.999, help="Power.")] = 0.8,
    judge: Judge = "",
    epsilon: Epsilon = 0.2,
    tokens_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="Throughput of the provider, for the time.")
    ] = None,
    target: AlignmentTarget = None,
    level: Level = 0.95,
    as_json: AsJson = False,
) -> None:
    """Computes how many samples or labelled items a study needs, from a pilot.

    The variance is that of the pilot, with the items of a sample as one cluster; cost and time are those of
    the pilot's tokens, per sample of both runs. With --margin the number is for the bound that the gate of
    "compare" reads, which holds for any loss of samples that were not seen. "cautious" is the number for
    the upper end of the variance's 80 percent interval. With --judge it is the number of items of each person
    for the test whether that judge may take people's place.

    Examples:
        dramaturg plan out/pilot-a out/pilot-b --margin 0.05

        dramaturg plan out/pilot-a out/pilot-b --effect 0.1 --power 0.9

        dramaturg plan labels.csv --half-width 0.05

        dramaturg plan labels.csv --judge gpt-4 --epsilon 0.15
    """
    if distance not in DISTANCES:
        raise typer.BadParameter(f"{distance!r} is none of {', '.join(DISTANCES)}", param_hint="--distance")
    request = plan_pb2.PlanStudyRequest(power=power, confidence_level=level)
    tokens: float | None = None
    if judge:
        if len(pilot) != 1 or not pilot[0].is_file() or half_width is not None or margin is not None:
            problem = "--judge needs one file of labels, without --half-width and --margin"
            raise typer.BadParameter(problem, param_hint="PILOT")
        _replacement(request, pilot[0], distance, judge, epsilon, target, level)
    elif half_width is not None:
        if len(pilot) != 1 or not pilot[0].is_file():
            raise typer.BadParameter("--half-width needs one file of labels", param_hint="PILOT")
        request.half_width = half_width
        request.agreement.CopyFrom(_agreement(pilot[0], distance, target, level))
    else:
        if len(pilot) != _TWO:
            raise typer.BadParameter("name two folders of results", param_hint="PILOT")
        request.effect = effect
        if margin is not None:
            request.margin = margin
        figure, scale = _difference(pilot, target, level)
        request.difference.CopyFrom(figure)
        loss = largest_task_loss or scale
        if loss is None and margin is not None:
            raise typer.BadParameter(
                "these scores have no scale: state the most that one sample may lose",
                param_hint="--largest-task-loss",
            )
        if loss is not None:
            request.largest_task_loss = loss
        cost, tokens = _per_sample(pilot)
        if cost is not None:
            request.unit_cost = cost
        if tokens is not None and tokens_per_second is not None:
            request.unit_seconds = tokens / tokens_per_second
    response = call_alignment(target, lambda stub: stub.PlanStudy(request))
    if response.undefined:
        fail(f"no number is enough: {response.undefined}", code=1)
    fewest = response.fewest_unit_count if response.HasField("fewest_unit_count") else None
    figure = request.agreement if half_width is not None else request.difference
    found: dict[str, Any] = {
        "pilot": {"units": figure.unit_count, "standard_error": figure.standard_error},
        "units": response.unit_count,
        "cautious_units": response.cautious_unit_count if response.HasField("cautious_unit_count") else None,
        "fewest_units": fewest,
        "standard_error": response.standard_error,
        "tokens": None if tokens is None else round(tokens * response.unit_count),
        "cost_usd": response.cost if response.HasField("cost") else None,
        "seconds": response.seconds if response.HasField("seconds") else None,
    }
    if as_json:
        print_json({"confidence_level": level, "power": power, **found}, [])
        return
    heads = ("needed", "cautious", "standard error", "tokens", "cost in USD", "hours")
    table = Table("", columns("unit", figures=heads))
    table.add_row(
        "items of each person" if judge else "items" if half_width is not None else "samples",
        str(response.unit_count),
        str(found["cautious_units"] or ""),
        f"{response.standard_error:.4g}",
        str(found["tokens"] if found["tokens"] is not None else ""),
        f"{response.cost:.2f}" if response.HasField("cost") else "",
        f"{response.seconds / 3600:.1f}" if response.HasField("seconds") else "",
    )
    goal = f"a difference of {effect or 0:g}, power {power:g}"
    if judge:
        goal = (
            f"{judge} in the place of half of the people (epsilon {epsilon:g}), power {power:g} of the median"
        )
    elif half_width is not None:
        goal = f"Krippendorff's alpha ({distance}) with an interval of half width {half_width:g}"
    elif margin is not None:
        goal = f"GO at a margin of {margin:g} where the difference is {effect or 0:g}, power {power:g}"
    floor = (
        []
        if fewest is None
        else [
            (
                f"fewer than {fewest} samples are never GO at this margin where one sample may lose "
                f"{request.largest_task_loss:g}: see --largest-task-loss"
            )
        ]
    )
    if judge:
        floor = ["a person with fewer than 30 items counts as one whose place the judge may not take"]
    print_tables(
        output(),
        table,
        f"for {goal}; level {level:g}",
        *floor,
        f"pilot: {figure.unit_count} units, standard error {figure.standard_error:.4g}",
    )
    if judge or half_width is not None:
        tell_next("labels", "create", "RUN", "--size", response.unit_count)
    else:
        tell_next("eval", "FILE", "--limit", response.unit_count)


def _replacement(
    request: plan_pb2.PlanStudyRequest,
    file: Path,
    distance: str,
    judge: str,
    epsilon: float,
    target: str | None,
    level: float,
) -> None:
    """Plans the test of the median person, at the error that it has where just half of them are won.

    That is of Benjamini and Yekutieli's step r of m: r / (m H_m) of one less the level, one-sided.
    """
    asked = _labels(file, distance, level)
    asked.judge, asked.epsilon = judge, epsilon
    found = call_alignment(target, lambda stub: stub.MeasureAgreement(asked)).groups[0].replacement
    if found.undefined:
        fail(f"the pilot has no answer: {found.undefined}")
    people = sorted(
        (one for one in found.annotators if one.standard_error > 0),
        key=lambda one: one.annotator_advantage - one.judge_advantage,
    )
    wanted = -(-len(found.annotators) // 2)
    if len(people) < wanted:
        fail("the pilot says nothing of the variance: the judge and people differ nowhere")
    median = people[wanted - 1]
    distance_to = epsilon - (median.annotator_advantage - median.judge_advantage)
    if distance_to <= 0:
        fail("no number is enough: in the pilot the judge is worse by epsilon or more", code=1)
    harmonic = sum(1 / rank for rank in range(1, len(found.annotators) + 1))
    error = (1 - level) * wanted / (len(found.annotators) * harmonic)
    request.confidence_level, request.effect = min(0.999, 1 - 2 * error), distance_to
    request.difference.CopyFrom(
        plan_pb2.PilotFigure(standard_error=median.standard_error, unit_count=median.unit_count)
    )


def _difference(
    pilot: list[Path], target: str | None, level: float
) -> tuple[plan_pb2.PilotFigure, float | None]:
    """The figure of the difference of two runs, and the width of the scale."""
    names = [str(path) for path in pilot]
    try:
        runs = [read_run(path, name, by_sample=False) for path, name in zip(pilot, names, strict=True)]
        request, _ = comparison(runs, None)
    except (RunsError, LineError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    request.cluster_tag, request.confidence_level, request.permutation_count = SAMPLE, level, 1
    response = call_alignment(target, lambda stub: stub.CompareRuns(request))
    scale = response.largest_task_loss if response.HasField("largest_task_loss") else None
    return _figure(response.comparisons[0]), scale


def _figure(whole: compare_pb2.RunComparison) -> plan_pb2.PilotFigure:
    difference = whole.policies[0].difference
    if not difference.HasField("standard_error"):
        fail("the pilot says nothing of the variance: all differences are equal, or there are none")
    return plan_pb2.PilotFigure(
        standard_error=difference.standard_error, unit_count=max(2, whole.cluster_count)
    )


def _agreement(file: Path, distance: str, target: str | None, level: float) -> plan_pb2.PilotFigure:
    request = _labels(file, distance, level)
    response = call_alignment(target, lambda stub: stub.MeasureAgreement(request))
    alpha = response.groups[0].krippendorff_alpha
    if not alpha.HasField("standard_error"):
        fail("the pilot says nothing of the variance of Krippendorff's alpha")
    units = {item.tags[_ITEM] for item in request.items if len(item.annotations) >= _TWO}
    return plan_pb2.PilotFigure(standard_error=alpha.standard_error, unit_count=max(_TWO, len(units)))


def _labels(file: Path, distance: str, level: float) -> agreement_pb2.MeasureAgreementRequest:
    request = agreement_pb2.MeasureAgreementRequest(
        resample_count=1, confidence_level=level, distance=DISTANCES[distance]
    )
    rows = Rows.read(file).one_label_a_row()
    request.group_tag = group_column(rows)
    # The labels of an item by several criteria depend on each other.
    request.cluster_tag = _ITEM
    add_annotations(request, rows)
    return request


def _per_sample(pilot: list[Path]) -> tuple[float | None, float | None]:
    """The cost and the tokens of one sample in all runs; ``None`` where no sample states them."""
    cost = tokens = 0.0
    priced = metered = False
    for path in pilot:
        samples, own_cost, own_tokens = 0, 0.0, 0.0
        for sample in read_results(path):
            kind = sample.WhichOneof("result")
            if kind is None:
                continue
            samples += 1
            usage = getattr(getattr(sample, kind), "usage", None)
            if usage is None:
                continue
            own_tokens += usage.prompt_token_count + usage.completion_token_count
            own_cost += usage.cost_usd
            priced, metered = priced or usage.HasField("cost_usd"), metered or own_tokens > 0
        cost, tokens = cost + own_cost / max(1, samples), tokens + own_tokens / max(1, samples)
    return cost if priced else None, tokens if metered else None
