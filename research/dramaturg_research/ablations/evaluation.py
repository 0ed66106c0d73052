"""Evaluates the same rows once for each variant."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.evaluate.scripts import verdicts_judged
from dramaturg.cli.evaluation import WINDOW, RowsJob
from dramaturg.cli.platform import UsageError, environment, gateway
from dramaturg.cli.progress import ProgressBar
from dramaturg.cli.sample_loop import evaluate_rows
from dramaturg.cli.summaries import summarize_folder
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.datasets import Row
from dramaturg.datasets.row_file import RowFile
from dramaturg.results.coverage import CoverageCounter
from dramaturg.results.files import ResultWriter, read_results
from dramaturg.results.variants import BASE, LINE_TAG, VARIANT_TAG
from dramaturg.service.channel import open_channel
from dramaturg.summaries.decision_accuracy import ALL
from dramaturg.summaries.labels import HumanLabels
from dramaturg.summaries.samples import SampleAggregator
from dramaturg_research.ablations.agreement import (
    VariantFigures,
    labelled_outcomes,
    measure_agreement,
    read_verdicts,
)
from dramaturg_research.ablations.variants import Variant

ROLES = ("synthesize", "critic", "execute", "commonsense", "script-judge", "alignment")
"""The roles that are asked."""


async def run_variants(
    job: RowsJob,
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
    agreement, missing = await _agreement(job.target, variants, folder, people)
    figures = [
        VariantFigures(variant.name, summaries[variant.name], agreement.get(variant.name, {}))
        for variant in variants
    ]
    return figures, missing


async def _agreement(
    target: str | None, variants: Sequence[Variant], folder: Path, people: HumanLabels | None
) -> tuple[Mapping[str, Mapping[str, AccuracyGroup]], str]:
    """The agreement of each variant by criterion, of all under "all", and the reason if there is none."""
    async with gateway(target, ["alignment"]) as address:
        if people is not None:
            verdicts = {one.name: read_verdicts(read_results(folder / one.folder)) for one in variants}
            gold = labelled_outcomes(verdicts[BASE], people)
            async with open_channel(address) as channel:
                return await measure_agreement(AlignmentServiceStub(channel), verdicts, gold)
        async with DramaturgClient(address) as client:
            samples = chain.from_iterable(read_results(folder / one.folder) for one in variants)
            try:
                summary = await client.summarize(samples, SummaryOptions())
            except ServiceError as error:
                return {}, f"the gateway computed no summary: {error.message}"
    found: dict[str, dict[str, AccuracyGroup]] = {}
    for one in summary.scripts.variants:
        found.setdefault(one.variant, {})[one.criterion or ALL] = one.agreement
    return found, "" if found else "; ".join(summary.problems)


async def _run(
    job: RowsJob,
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
    with writer, ProgressBar(total, "verdicts", verdicts_judged, variant.name) as progress:
        await evaluate_rows(
            evaluate,
            _tagged(rows, variant),
            writer,
            SampleAggregator(),
            progress,
            CoverageCounter(),
            concurrency=job.concurrency,
        )
    return await summarize_folder(client, place, SummaryOptions())


def _tagged(
    rows: Iterable[Row[EvaluateScriptsRequest]], variant: Variant
) -> Iterator[Row[EvaluateScriptsRequest]]:
    for row in rows:
        row.request.tags[VARIANT_TAG] = variant.name
        row.request.tags[LINE_TAG] = str(row.line)
        yield row
