"""Summaries of runs of variants and of perturbed scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_SUCCEEDED,
    RunSample,
)
from tests.support.results import scripts_result
from tests.support.stored_runs import address_of, assert_consumers_agree, client, store_run


def variant_sample(variant: str, line: int, passed_: bool | None) -> RunSample:
    """The same candidate of a row, judged in a variant."""
    result = scripts_result(f"t{line}", {"a": {"executable": passed_}})
    tags = {"variant": variant, "line": str(line)}
    result.tags.update(tags)
    return RunSample(state=SAMPLE_STATE_SUCCEEDED, attempt_count=1, scripts=result, tags=tags)


async def test_a_run_of_variants_has_their_agreement_with_the_base(tmp_path: Path) -> None:
    verdicts = {"base": [True, False, None, True], "single-judge": [True, True, True, None]}
    some = [
        variant_sample(variant, line, given)
        for variant, judged in verdicts.items()
        for line, given in enumerate(judged)
    ]
    for index, sample in enumerate(some):
        sample.index = index
    store_run(address_of(tmp_path), "run", some)
    async with client(tmp_path, "alignment") as gateway:
        found = (await gateway.runs.summary("run")).summary
        await assert_consumers_agree(gateway, tmp_path, some, await gateway.summarize(some))
    agreement = {(one.variant, one.criterion): one.agreement for one in found.scripts.variants}
    assert set(agreement) == {
        (variant, criterion) for variant in verdicts for criterion in ("executable", "")
    }
    whole = agreement["single-judge", ""]
    # The base decides three; of these the variant decides two and agrees on one.
    assert (whole.item_count, whole.answered_count, whole.correct_count) == (3, 2, 1)
    assert agreement["base", ""].correct_count == 3


async def test_a_run_of_perturbed_scripts_has_the_detection_of_faults(tmp_path: Path) -> None:
    some: list[RunSample] = []
    for line, (before, after) in enumerate([(True, False), (True, True), (False, False), (None, None)]):
        for fault, given in (("none", before), ("missing-steps", after)):
            result = scripts_result(f"t{line}/{fault}", {"a": {"no_missing_steps": given}})
            tags = {"perturbation": fault, "operation": "delete", "candidate": "a", "source_line": str(line)}
            some.append(
                RunSample(
                    index=len(some), state=SAMPLE_STATE_SUCCEEDED, attempt_count=1, scripts=result, tags=tags
                )
            )
    store_run(address_of(tmp_path), "run", some)
    async with client(tmp_path, "alignment") as gateway:
        found = (await gateway.runs.summary("run")).summary
        page = b"".join([piece async for piece in gateway.runs.report("run")]).decode()
    figures = found.scripts.perturbations
    assert (figures.fault_count, figures.unperturbed_count) == (4, 4)
    every, deleted = figures.faults
    assert (every.category, every.operation, deleted.operation) == ("missing-steps", "", "delete")
    assert every.criterion == "no_missing_steps"
    assert (every.faults.item_count, every.faults.answered_count, every.faults.correct_count) == (4, 3, 2)
    assert every.passed_unperturbed.accuracy_when_answered.value == pytest.approx(1 / 2)
    alarms = {one.criterion: one.alarms for one in figures.false_alarms}
    assert alarms["no_missing_steps"].correct_count == 1
    assert every.youden_j == pytest.approx(2 / 4 - 1 / 4)
    assert "Planted faults" in page
    assert "Detection by fault" in page
