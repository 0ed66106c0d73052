"""``dramaturg perturb report``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.cli.cells import interval, number
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.tables import Table, print_tables
from dramaturg.datasets.json_lines import LineError
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.files import read_results
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.detection import (
    PASSED_BEFORE,
    Detection,
    Findings,
    NotPerturbedError,
    describe_flags,
    read_detections,
)

LEGEND = (
    "of judged: of the verdicts that decide; of all: abstentions count as not flagged; if passed: of judged\n"
    "of the scripts that passed untouched; J: of all, less the false alarms of all (Youden 1950).\n"
    "Intervals are Wilson's (1927), for the effective number of tasks."
)
"""The legend of the tables."""


def report(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            help="The folder of results, its results.jsonl, or an export of a run (samples-jsonl).",
        ),
    ],
    target: AlignmentTarget = None,
    as_json: AsJson = False,
) -> None:
    """Reports detection rates of faults and false-alarm rates.

    RESULTS are results of "evaluate scripts", or of a run, on the rows of "perturb write". For each category
    and rule: the share of scripts with the fault that fail its criterion (detection rate), the same for
    scripts that pass unchanged, and the share of unchanged scripts that fail it (false alarms). Shares are
    of the verdicts that decide, with Wilson's interval for the effective number of tasks.

    Exit codes: 0 fine, 1 figures are missing, 2 wrong usage or results.

    For example:

        dramaturg perturb report out/perturbed --json
    """
    failed = 0

    def judged() -> Iterator[ScriptsResult]:
        nonlocal failed
        for sample in read_results(results):
            if sample.HasField("scripts"):
                yield sample.scripts
            elif sample.HasField("error"):
                failed += 1
            else:
                raise NotPerturbedError("is of no scripts")

    try:
        found = Findings.read(judged())
    except NotPerturbedError as error:
        fail(f"{results}: a result {error}")
    except LineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or results}: {error.strerror or error}")
    if not found.faults and not found.alarms:
        fail(f"{results}: there are no results")
    try:
        detections, alarms = run(_measure(target, found))
    except grpc.aio.AioRpcError as failure:
        fail(f"{target or 'the alignment service'}: {from_rpc_error(failure).message}", code=1)
    if as_json:
        summary = {
            "faults": len(found.faults),
            "untouched": found.untouched,
            "failed_samples": failed,
            "detection": [one.describe() for one in detections],
            "false_alarms": {name: describe_flags(alarms[name]) for name in ABSEVAL if name in alarms},
        }
        typer.echo(json.dumps(summary, ensure_ascii=False))
        return
    console = output()
    print_tables(console, _detection_table(detections), _alarm_table(alarms))
    console.print(
        f"{len(found.faults)} faults in {found.untouched} scripts, which are judged untouched too.\n{LEGEND}",
        soft_wrap=True,
    )
    if failed:
        console.print(f"{failed} samples failed and are in no figure", style="red")


async def _measure(
    target: str | None, found: Findings
) -> tuple[Sequence[Detection], Mapping[str, AccuracyGroup]]:
    async with service_channel("alignment", target) as channel:
        alignment = AlignmentServiceStub(channel)
        alarms: dict[str, AccuracyGroup] = {}
        if found.alarms:
            answered = await alignment.MeasureAccuracy(found.alarm_request())
            alarms = {group.tags["criterion"]: group for group in answered.groups}
        if not found.faults:
            return [], alarms
        measured = await alignment.MeasureAccuracy(found.detection_request())
        return read_detections(measured.groups, alarms), alarms


def _detection_table(detections: Sequence[Detection]) -> Table:
    heads = (
        "scripts",
        "judged",
        "detected",
        "of judged",
        "95 %",
        "if passed",
        "of all",
        "95 %",
        "J",
    )
    table = Table("fault", "made by", figures=heads, title="detected")
    for one in detections:
        described = one.describe()
        table.add_row(
            one.category,
            one.operation,
            *_counts(described),
            *_rate(described["rate"]),
            number(described[PASSED_BEFORE]["rate"]["value"]),
            *_rate(described["rate_abstentions_unflagged"]),
            number(one.youden),
        )
    return table


def _alarm_table(alarms: Mapping[str, AccuracyGroup]) -> Table:
    heads = ("scripts", "judged", "flagged", "of judged", "95 %", "of all", "95 %")
    table = Table("criterion", figures=heads, title="false alarms on the untouched")
    for name in ABSEVAL:
        if name in alarms:
            described = describe_flags(alarms[name])
            rates = (_rate(described[member]) for member in ("rate", "rate_abstentions_unflagged"))
            table.add_row(name, *_counts(described), *(cell for rate in rates for cell in rate))
    return table


def _counts(described: Mapping[str, Any]) -> Sequence[str]:
    return [str(described[member]) for member in ("n", "judged", "flagged")]


def _rate(rate: Mapping[str, float | None]) -> tuple[str, str]:
    return number(rate["value"]), interval(rate["lower"], rate["upper"])
