"""Evaluates the same rows once for each variant."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.ablate.variants import BASE, Variant
from dramaturg.cli.evaluate.scripts import verdicts_judged
from dramaturg.cli.evaluation import WINDOW, Job
from dramaturg.cli.platform import UsageError, environment, gateway
from dramaturg.cli.progress import ProgressBar
from dramaturg.cli.sample_loop import evaluate_rows
from dramaturg.cli.summaries import summarize_folder
from dramaturg.client import DramaturgClient
from dramaturg.datasets import Row
from dramaturg.datasets.row_file import RowFile
from dramaturg.results.coverage import CoverageCounter
from dramaturg.results.files import ResultWriter, read_results
from dramaturg.service.channel import open_channel
from dramaturg.summaries.ablation import (
    LINE_TAG,
    VariantFigures,
    expected_outcomes,
    measure_agreement,
    read_verdicts,
)
from dramaturg.summaries.labels import HumanLabels
from dramaturg.summaries.samples import SampleAggregator

ROLES = ("synthesize", "critic", "execute", "commonsense", "script-judge", "alignment")
"""The roles that are asked."""


async def run_variants(
    job: Job,
    variants: Sequence[Variant],
    rows: RowFile[EvaluateScriptsRequest],
    total: int,
    folder: Path,
    people: HumanLabels | None,
) -> tuple[Sequence[VariantFigures], str]:
    """The figures of each variant, in their order, and the reason if there is no agreement; else "".

    Variants that need other prompt files need services of their own; the others share theirs. What one
    variant bought the next one has from the ledger.

    Args:
        job: What the command was told.
        variants: The variants, the base first.
        rows: The rows, checked.
        total: How many these are.
        folder: Where results go, each variant's into a folder of its own.
        people: What people say. None: variants are compared with the base.
    """
    summaries: dict[str, Summary] = {}
    # The base has no prompts of its own, so those without any come first.
    ordered = sorted(variants, key=lambda one: sorted(one.environment.items()))
    for settings, alike in groupby(ordered, key=lambda one: one.environment):
        with environment(settings):
            async with gateway(job.target, ROLES) as address, DramaturgClient(address) as client:
                for variant in alike:
                    summaries[variant.name] = await _run(job, variant, client, rows, total, folder)
    verdicts = {variant.name: read_verdicts(read_results(folder / variant.folder)) for variant in variants}
    gold = expected_outcomes(verdicts[BASE], people)
    async with gateway(job.target, ["alignment"]) as address, open_channel(address) as channel:
        agreement, missing = await measure_agreement(AlignmentServiceStub(channel), verdicts, gold)
    figures = [VariantFigures(name, summaries[name], agreement.get(name, {})) for name in verdicts]
    return figures, missing


async def _run(
    job: Job,
    variant: Variant,
    client: DramaturgClient,
    rows: RowFile[EvaluateScriptsRequest],
    total: int,
    folder: Path,
) -> Summary:
    """Evaluates the rows in one variant; returns the summary of its results."""

    def evaluate(request: EvaluateScriptsRequest) -> AsyncGenerator[Any]:
        variant.apply(request)
        job.apply(request)
        return client.evaluate_scripts(request, timeout=job.timeout)

    place = folder / variant.folder
    try:
        writer = ResultWriter(place, WINDOW * job.concurrency)
    except OSError as error:
        raise UsageError(f"{place}: {error.strerror or error}") from error
    with writer, ProgressBar(total, f"verdicts, {variant.name}", verdicts_judged) as progress:
        await evaluate_rows(
            evaluate,
            _numbered(rows),
            writer,
            SampleAggregator(),
            progress,
            CoverageCounter(),
            concurrency=job.concurrency,
        )
    return await summarize_folder(client, place, SummaryOptions())


def _numbered(rows: Iterable[Row[EvaluateScriptsRequest]]) -> Iterator[Row[EvaluateScriptsRequest]]:
    for row in rows:
        row.request.tags[LINE_TAG] = str(row.line)
        yield row
