"""Compares results as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dramaturg.api.alignment.v1 import accuracy_pb2, compare_pb2
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.align.connection import call_alignment
from dramaturg.cli.platform import run
from dramaturg.cli.summaries import summarize_results
from dramaturg.report.comparison import render_comparison
from dramaturg.results.files import read_results
from dramaturg.results.kind import Judgement
from dramaturg.summaries.comparison import (
    CRITERION,
    SAMPLE,
    RunsError,
    comparison,
    outcome_flips,
    read_run,
)
from dramaturg.tables.comparison import BETTER, CHANGED, WORSE, Comparison, Flip

_PERMUTATIONS = 9999


def write_comparison(
    results: Sequence[Path], out: Path, *, title: str, limit: int, target: str | None
) -> str:
    """Writes the page that compares results with the first.

    Args:
        results: The results, the baseline first.
        out: The page.
        title: Its title. Empty: the names of the results.
        limit: The maximum number of samples shown one by one.
        target: The address of the gateway. None: services are started for the command.

    Returns:
        The counts of changes, as text.

    Raises:
        RunsError: The results cannot be compared.
        LineError: A line is not a result.
        OSError: A file cannot be read or written.
    """
    names = _names(results)
    runs = [read_run(path, name, by_sample=False) for path, name in zip(results, names, strict=True)]
    request, left_out = comparison(runs, None)
    request.MergeFrom(
        compare_pb2.CompareRunsRequest(
            group_tag=CRITERION,
            cluster_tag=SAMPLE,
            permutation_count=_PERMUTATIONS,
            abstention_policy=accuracy_pb2.ABSTENTION_POLICY_EXCLUDED,
        )
    )
    response = call_alignment(target, lambda stub: stub.CompareRuns(request))
    flips = [
        Flip(flipped.name, *key, before.outcome(), after.outcome(), _direction(before, after), after.model)
        for flipped, key, before, after in outcome_flips(runs)
    ]
    made = Comparison(
        runs=names,
        summaries=_summaries(results, names, target),
        response=response,
        flips=flips,
        value=runs[0].comparability.value,
        shares=runs[0].comparability.shares,
        left_out=left_out,
    )
    samples = {name: read_results(path) for path, name in zip(results, names, strict=True)}
    with out.open("w", encoding="utf-8", errors="replace") as file:
        for piece in render_comparison(title or " and ".join(names), made, samples, limit):
            file.write(piece)
    return f"{len(flips)} judgements differ"


def _names(results: Sequence[Path]) -> Sequence[str]:
    names = [path.resolve().name if path.is_dir() else path.resolve().parent.name for path in results]
    if len(set(names)) < len(names):
        names = [str(path) for path in results]
    if len(set(names)) < len(names):
        raise RunsError("a result is named twice")
    return names


def _summaries(results: Sequence[Path], names: Sequence[str], target: str | None) -> dict[str, Summary]:
    return {
        name: run(summarize_results(target, path, SummaryOptions(), mapped=False))
        for path, name in zip(results, names, strict=True)
    }


def _direction(before: Judgement, after: Judgement) -> str:
    if before.value is None or after.value is None:
        return CHANGED
    return BETTER if after.value > before.value else WORSE
