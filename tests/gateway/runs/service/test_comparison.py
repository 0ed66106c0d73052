"""CompareRuns: stored runs through a gateway with its alignment service."""

from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.api.alignment.v1.accuracy_pb2 import ABSTENTION_POLICY_EXCLUDED
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.run_service_pb2 import (
    CompareRunsRequest,
)
from dramaturg.judge.verdicts import scored
from dramaturg.service.errors import ServiceError
from tests.support.evaluation_samples import (
    samples,
)
from tests.support.stored_runs import address_of, client, store_run


async def test_runs_are_compared(tmp_path: Path) -> None:
    before, after = samples("scripts"), samples("scripts")
    verdict = after[0].scripts.candidates[0].verdicts[0]
    verdict.outcome = verdict_pb2.OUTCOME_FAIL
    for some, version in ((before, "1.0"), (after, "9.9")):
        assessed = some[0].scripts.candidates[0].assessments.add(role="critic", judge="llm")
        assessed.assessment.verdicts.append(verdict)
        assessed.assessment.provenance.name = "llm-critic"
        assessed.assessment.provenance.version = version
    store_run(address_of(tmp_path), "before", before)
    store_run(address_of(tmp_path), "after", after)
    async with client(tmp_path, "alignment") as gateway:
        found = await gateway.runs.compare(CompareRunsRequest(run_ids=["before", "after"], margin=0.1))
        with pytest.raises(ServiceError) as twice:
            await gateway.runs.compare(CompareRunsRequest(run_ids=["before", "before"]))
    (flip,) = found.flips
    assert (flip.run_id, flip.sample_id, flip.subject, flip.aspect) == ("after", "t1", "a", "adequacy")
    assert (flip.baseline_outcome, flip.outcome) == ("passed", "failed")
    assert found.flip_count == 1
    assert found.setup_changes == [
        "after: the judge 'llm' of critic has the version 'llm-critic 9.9', not 'llm-critic 1.0'"
    ]
    assert found.comparison.comparisons
    assert twice.value.violations[0].field == "run_ids"


async def test_runs_of_texts_are_compared_by_verdicts_and_scores(tmp_path: Path) -> None:
    before, after = samples("texts"), samples("texts")
    for some in (before, after):
        for place, sample in enumerate(some[:-1]):
            sample.texts.task.id = f"t{place}"
    polite, clear = after[0].texts.texts[0].verdicts
    polite.outcome, clear.score = verdict_pb2.OUTCOME_FAIL, 4
    after[1].texts.texts[1].verdicts[1].CopyFrom(scored("clear", 5))
    store_run(address_of(tmp_path), "before", before)
    store_run(address_of(tmp_path), "after", after)
    async with client(tmp_path, "alignment") as gateway:
        found = await gateway.runs.compare(CompareRunsRequest(run_ids=["before", "after"]))
    flips = {
        (one.sample_id, one.subject, one.aspect): (one.baseline_outcome, one.outcome) for one in found.flips
    }
    assert flips == {
        ("t0", "a", "polite"): ("passed", "failed"),
        ("t0", "a", "clear"): ("2 of 1 to 5", "4 of 1 to 5"),
        ("t1", "b", "clear"): ("TIMED_OUT", "5 of 1 to 5"),
    }
    groups = {one.group: one for one in found.comparison.comparisons}
    assert set(groups) == {"", "polite", "clear"}
    by_policy = {one.policy: one for one in groups["clear"].policies}
    assert by_policy[ABSTENTION_POLICY_EXCLUDED].difference.value == pytest.approx(2 / 4 / 3)
    assert all(one.HasField("p_value") for one in groups[""].policies)
