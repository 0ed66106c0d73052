"""A summary keeps numbers, not texts: its memory does not grow with the samples."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions, TagGrouping
from dramaturg.judge.verdicts import failed, passed
from gateway.evaluations.kinds import SUMMARIES
from gateway.evaluations.summary import Summarizer
from tests.support.evaluation_samples import RESULTS

TEXT = "A long rationale. " * 200


def scripts(sample: RunSample, index: int) -> None:
    result = sample.scripts
    result.CopyFrom(RESULTS["scripts"][index % 3])  # type: ignore[arg-type]  # of the kind
    result.task.id = f"task {index}"
    for candidate in result.candidates:
        candidate.script.steps.add(text=TEXT)
        for verdict in candidate.verdicts:
            verdict.rationale = TEXT


def texts(sample: RunSample, index: int) -> None:
    sample.texts.CopyFrom(RESULTS["texts"][index % 3])  # type: ignore[arg-type]  # of the kind
    for text in sample.texts.texts:
        text.text = TEXT
        verdicts: list[Verdict] = [passed("polite", rationale=TEXT), failed("other", rationale=TEXT)]
        text.verdicts.extend(verdicts)


def scenarios(sample: RunSample, index: int) -> None:
    sample.scenarios.CopyFrom(RESULTS["scenarios"][index % 3])  # type: ignore[arg-type]  # of the kind
    for one in sample.scenarios.scenarios:
        one.scenario = TEXT if one.scenario else ""


def simulations(sample: RunSample, index: int) -> None:
    sample.simulation.CopyFrom(RESULTS["simulation"][index % 3])  # type: ignore[arg-type]  # of the kind
    for one in sample.simulation.utterances:
        one.text = TEXT


def kept(fill: Callable[[RunSample, int], None], count: int) -> int:
    """The memory that a summarizer keeps after samples, in bytes."""
    options = SummaryOptions(groupings=[TagGrouping(tags=["level"])])
    gc.collect()
    tracemalloc.start()
    try:
        summarizer = Summarizer(SUMMARIES, options)
        for index in range(count):
            sample = RunSample(index=index, sample_id=str(index), state=SAMPLE_STATE_SUCCEEDED)
            sample.tags["level"] = str(index % 4)
            fill(sample, index)
            summarizer.add(sample)
        del sample
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("fill", [scripts, texts, scenarios, simulations])
def test_a_summary_keeps_no_texts(fill: Callable[[RunSample, int], None]) -> None:
    few, many = kept(fill, 100), kept(fill, 500)
    # A text has 3,600 bytes: 400 samples that kept one would add 1.4 MB.
    assert many - few < 200_000, f"{few} bytes after 100 samples, {many} after 500"


@pytest.mark.slow
def test_a_summary_of_30_000_samples_keeps_as_much_as_one_of_3_000() -> None:
    few, many = kept(simulations, 3_000), kept(simulations, 30_000)
    assert many < 1.5 * few + 100_000, f"{few} bytes after 3,000 samples, {many} after 30,000"
