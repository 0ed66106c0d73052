"""The report of a run, the same page that ``dramaturg report`` makes from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunState
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.report.page import SAMPLES_SHOWN, Heading, render
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.results.exports import in_pieces


def write_report(
    run: RunRecord,
    summary: Summary,
    pages: Callable[[], Iterable[Sequence[RunSample]]],
    limit: int = 0,
) -> Iterator[bytes]:
    """The page, in pieces. Memory does not grow with the texts of samples.

    Args:
        run: The run.
        summary: Its figures.
        pages: Reads its samples from the start, in pages.
        limit: The most samples in full. 0: the default of the report.
    """
    samples = chain.from_iterable(pages())
    pieces = render(_heading(run), summary, samples, limit or SAMPLES_SHOWN)
    yield from in_pieces(piece.encode("utf-8", "replace") for piece in pieces)


def _heading(run: RunRecord) -> Heading:
    state = RunState.Name(run.state).removeprefix("RUN_STATE_").lower()
    facts = [
        ("run", run.id),
        ("state", f"{state}: {run.state_reason}" if run.state_reason else state),
        ("created", f"{run.create_time:%Y-%m-%d %H:%M} UTC"),
    ]
    if run.manifest.uri:
        facts.append(("dataset", run.manifest.uri))
    counts = run.counts
    left = counts.left
    if run.state in ACTIVE:
        warning = f"The run has not ended: {left:,} of {counts.samples:,} samples are not done."
    elif left > 0:
        warning = f"The run ended before {left:,} of {counts.samples:,} samples were done."
    else:
        warning = ""
    return Heading(run.spec.display_name or f"Run {run.id}", facts, warning)
