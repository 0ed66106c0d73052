"""Evaluates the same rows once for each variant."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, groupby
from pathlib import Path

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.evaluation import RowsJob
from dramaturg.cli.evaluation_runs import ResultFolder, delete_store, evaluate_run, run_rows, store_of
from dramaturg.cli.platform import environment, gateway
from dramaturg.cli.runs.connection import make_policy
from dramaturg.cli.terminal import echo
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.datasets import Row
from dramaturg.datasets.row_file import RowFile
from dramaturg.results.files import read_results
from dramaturg.results.groups import BASE, LINE_TAG, VARIANT_TAG
from dramaturg.results.names import ALL
from dramaturg.service.channel import open_channel
from dramaturg.summaries.labels import HumanLabels
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
        folder: Where results go, each variant's into a folder of its own.
        people: What people say. None: variants are compared with the base.
    """
    summaries: dict[str, Summary] = {}
    # The base has no prompts of its own, so those without any come first.
    ordered = sorted(variants, key=lambda one: sorted(one.environment.items()))
    for settings, alike in groupby(ordered, key=lambda one: one.environment):
        with environment(settings):
            summaries |= await _run(job, tuple(alike), rows, folder)
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
    job: RowsJob, variants: Sequence[Variant], rows: RowFile[EvaluateScriptsRequest], folder: Path
) -> Mapping[str, Summary]:
    """Evaluates the rows in variants that share their services; returns the summary of each.

    Raises:
        typer.Exit: 1 where a run is paused, with its reason; 130 where one is interrupted.
    """
    with ExitStack() as stack:
        written = [stack.enter_context(run_rows(_requests(job, variant, rows))) for variant in variants]
        identity = hashlib.sha256(b"".join(one.digest for one in written)).digest()
        local, summaries = job.target is None, dict[str, Summary]()
        folders = [
            ResultFolder(folder / variant.folder, one.digest, job.target)
            for variant, one in zip(variants, written, strict=True)
        ]
        for place in folders:
            place.check(replace=job.replace)
        async with (
            gateway(job.target, ROLES, run_store=store_of(identity)) as address,
            DramaturgClient(address) as client,
        ):
            for variant, one, place in zip(variants, written, folders, strict=True):
                echo(f"{variant.name}:", err=True)
                spec = one.spec()
                spec.display_name = variant.name
                spec.policy.CopyFrom(make_policy(job.timeout))
                spec.limits.max_concurrent_samples = job.concurrency
                evaluated = await evaluate_run(client, one, spec, place, SummaryOptions(), local=local)
                evaluated.check()
                summaries[variant.name] = evaluated.summary
        if local:
            delete_store(identity)
    return summaries


def _requests(
    job: RowsJob, variant: Variant, rows: Iterable[Row[EvaluateScriptsRequest]]
) -> Iterator[Row[EvaluateScriptsRequest]]:
    for row in rows:
        row.request.tags[VARIANT_TAG] = variant.name
        row.request.tags[LINE_TAG] = str(row.line)
        variant.apply(row.request)
        job.apply(row.request)
        yield row
