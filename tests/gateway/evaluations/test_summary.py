"""A results file and a run of the same samples have one summary.

Summaries of runs of variants and of perturbed scripts.

A summary keeps numbers, not texts: its memory does not grow with the samples.
"""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_SUCCEEDED,
    RunSample,
)
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions, TagGrouping
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs
from dramaturg.judge.rules import criterion_role
from dramaturg.judge.verdicts import failed, passed
from dramaturg.service.errors import ServiceError
from gateway import servicer
from gateway.evaluations.kinds import SUMMARIES
from gateway.evaluations.summary import Summarizer
from tests.support.evaluation_samples import (
    KINDS,
    OPTIONS,
    RESULTS,
    SCRIPTS,
    samples,
)
from tests.support.results import scripts_result
from tests.support.stored_runs import address_of, assert_consumers_agree, client, store_run
from tests.support.texts import CLEAR, POLITE


async def summary(folder: Path, kind: str) -> Summary:
    """The summary of samples, which is that of a run with them."""
    some = samples(kind)
    store_run(address_of(folder), "run", some)
    async with client(folder, "alignment", "graph") as gateway:
        found = await gateway.summarize(some, OPTIONS)
        of_run = await gateway.runs.summary("run", OPTIONS)
        board = await gateway.runs.leaderboard("run")
        await assert_consumers_agree(gateway, folder, some, found)
    assert str(of_run.summary) == str(found)
    assert not found.problems
    assert found.WhichOneof("kind") == KINDS.get(kind, kind)
    assert (found.sample_count, found.failed_sample_count) == (len(some), 1)
    assert dict(found.failures_by_reason) == {"PROVIDER_UNAVAILABLE": 1}
    for mine, theirs in zip(found.leaderboard, board.entries, strict=True):
        theirs.ClearField("usage")
        assert mine == theirs
    return found


async def test_scripts(tmp_path: Path) -> None:
    found = await summary(tmp_path, "scripts")
    figures = {
        (tuple(sorted(one.tags.items())), one.model or "*", one.criterion): one
        for one in found.scripts.figures
    }
    mine = figures[(), "a", "adequacy"]
    assert (mine.verdict_count, mine.pass_count, mine.fail_count) == (3, 2, 1)
    assert mine.pass_rate.value == pytest.approx(2 / 3)
    pooled = figures[(), "b", ""]
    assert (pooled.pass_count, pooled.fail_count) == (2, 2)
    assert dict(pooled.abstentions_by_reason) == {"UNPARSABLE": 2}
    assert (pooled.pass_rate_lowest, pooled.pass_rate_highest) == pytest.approx((2 / 6, 4 / 6))
    assert (pooled.pass_rate.count, pooled.pass_rate.total) == (4, 6)
    high = figures[(("level", "high"),), "*", "adequacy"]
    assert (high.pass_count, high.fail_count) == (1, 3)
    nested = figures[(("level", "low"), ("source", "1")), "a", ""]
    assert nested.pass_count == 2
    assert found.scripts.candidate_count == 6


async def test_pairs_of_texts(tmp_path: Path) -> None:
    found = (await summary(tmp_path, "pair")).pairs
    methods = {one.method: one for one in found.methods if not one.tags}
    roles = methods["roles"]
    assert (roles.first_count, roles.second_count, roles.tie_count) == (1, 2, 1)
    assert roles.accuracy.accuracy.value == pytest.approx(2 / 4)
    assert roles.both_orders_count == 4
    assert roles.inconsistent_share.value == pytest.approx(1 / 4)
    assert roles.first_presented_share.value == pytest.approx(5 / 8)
    assert roles.longer_share.value == pytest.approx(2 / 3)
    assert methods["rouge-l"].baseline
    assert not methods["rouge-l"].HasField("inconsistent_share")
    assert methods["rouge-l"].accuracy.accuracy.value == 1.0
    assert methods["longer"].accuracy.accuracy.value == pytest.approx(2 / 4)
    assert found.best_baseline == "rouge-l"
    assert {one.measure for one in found.correlations.measures} == {"roles", "rouge-l", "longer"}
    assert (found.pair_count, found.labelled_pair_count) == (4, 4)
    (strengths,) = found.strengths
    assert strengths.method == "roles"
    (rate,) = strengths.preferences.win_rates
    assert (rate.win_rate.value, rate.draw_count) == (1.5 / 4, 1)
    # Odds of 1.5 to 2.5 on the Elo scale, with a mean of 0.
    apart = 400 * math.log10(2.5 / 1.5)
    ratings = {one.system: one.elo.value for one in strengths.preferences.ratings}
    assert ratings == pytest.approx({"a": -apart / 2, "b": apart / 2}, abs=0.01)


async def test_roles_have_their_votes_and_missing_maps_are_problems(tmp_path: Path) -> None:
    some = samples("pair")
    names = ["Cook", "cook ", "Cook", "Nurse"]
    some = [sample for sample in some if sample.HasField("pair")]
    for name, sample in zip(names, some, strict=True):
        role = pairs.Role(type=name, description="Reads.", origin=pairs.ROLE_ORIGIN_SUBJECTIVE_COARSE)
        sample.pair.comparisons[0].comparison.votes[0].role.CopyFrom(role)
    async with client(tmp_path, "alignment", "graph") as gateway:
        found = await gateway.summarize(some, OPTIONS)
        assert not found.problems  # no roles were clustered
        cook, nurse = found.pairs.roles
        assert (cook.role.type, nurse.role.type, found.pairs.role_count) == ("Cook", "Nurse", 2)
        votes = [sample.pair.comparisons[0].comparison.preference for sample in some[:3]]
        people = [sample.pair.human_preference for sample in some[:3]]
        assert cook.first_count == votes.count(pairs.PREFERENCE_FIRST)
        assert cook.second_count == votes.count(pairs.PREFERENCE_SECOND)
        assert cook.tie_count == votes.count(pairs.PREFERENCE_TIE)
        assert cook.labelled_count == 3
        assert cook.agreed_count == sum(vote == human for vote, human in zip(votes, people, strict=True))
        assert not cook.HasField("point")
        some[0].pair.roles.clustering.SetInParent()
        found = await gateway.summarize(some, OPTIONS)
        assert "the role 'roles' has no service" in found.problems[0]
        assert len(found.pairs.roles) == 2


async def test_pairs_compared_by_a_rubric_have_figures_by_criterion(tmp_path: Path) -> None:
    some = samples("pair")
    for sample in some:
        for one in sample.pair.comparisons:
            one.comparison.votes[0].role.CopyFrom(criterion_role(POLITE))
            one.comparison.votes.add(role=criterion_role(CLEAR), preference=pairs.PREFERENCE_SECOND)
    store_run(address_of(tmp_path), "run", some)
    async with client(tmp_path, "alignment") as gateway:
        found = (await gateway.runs.summary("run")).summary
        await assert_consumers_agree(gateway, tmp_path, some, await gateway.summarize(some))
    methods = {one.method: one for one in found.pairs.methods}
    polite, clear = methods["criterion polite"], methods["criterion clear"]
    assert (polite.first_count, polite.second_count, polite.tie_count) == (1, 2, 1)
    assert (clear.first_count, clear.second_count, clear.baseline) == (0, 4, False)
    assert clear.accuracy.accuracy.value == pytest.approx(2 / 4)
    rates = {one.method: one.preferences.win_rates[0].win_rate.value for one in found.pairs.strengths}
    assert rates == {"roles": 1.5 / 4, "criterion polite": 1.5 / 4, "criterion clear": 0}
    (board,) = [one for one in found.leaderboard if one.model == "b"]
    assert board.means_by_measure["win/criterion clear"] == 1
    votes = {(one.method, one.role.type): one.second_count for one in found.pairs.roles}
    assert votes == {("roles", "polite"): 2, ("roles", "clear"): 4}


async def test_pairs_without_a_preference_have_no_ratings_and_no_problem(tmp_path: Path) -> None:
    some = samples("pair")
    for sample in some:
        for comparison in sample.pair.comparisons:
            comparison.comparison.Clear()
            comparison.comparison.preference = pairs.PREFERENCE_ABSTAIN
    async with client(tmp_path, "alignment", "graph") as gateway:
        found = await gateway.summarize(some, OPTIONS)
    assert not found.pairs.strengths
    assert not found.problems


async def test_graphs(tmp_path: Path) -> None:
    found = (await summary(tmp_path, "graphs")).graphs
    (whole,) = (one for one in found.figures if not one.tags)
    assert (whole.model, whole.task, whole.graph_count) == ("a", "generate", 3)
    assert dict(whole.abstentions_by_reason) == {"REFUSED": 1}
    (distances,) = whole.distances
    assert (distances.mean.value, distances.mean.count) == (5.5, 2)
    assert (distances.mean_lower_bound, distances.proven_count) == (3.5, 1)
    assert 0 < distances.mean.lower < 5.5 < distances.mean.upper
    assert all(one.count == 2 for one in distances.mean_edits.values())


async def test_decisions(tmp_path: Path) -> None:
    found = (await summary(tmp_path, "decision")).decisions
    whole = {
        (one.prompt, one.order): one
        for one in found.figures
        if not one.tags and (one.format, one.level) == ("all", "all")
    }
    accuracy = {key: one.accuracy.accuracy.value for key, one in whole.items()}
    assert accuracy == pytest.approx(
        {("naive", "as-given"): 3 / 4, ("naive", "swapped"): 1 / 3, ("story", "as-given"): 1 / 4}
    )
    assert whole["naive", "swapped"].accuracy_abstentions_right == pytest.approx(2 / 4)
    (orders,) = found.option_orders
    assert (orders.decision_count, orders.answered_count) == (4, 3)
    assert orders.same_share == pytest.approx(2 / 3)


async def test_dialogues(tmp_path: Path) -> None:
    found = (await summary(tmp_path, "dialogue")).dialogues
    ratings = {one.model: one for one in found.ratings if one.group == "all" and not one.tags}
    assert ratings["a"].mean.value == pytest.approx(18.5 / 3)
    assert ratings["b"].mean.value == pytest.approx(3.5 / 2)
    assert (ratings["b"].mean.count, ratings["b"].script_count) == (2, 3)
    assert found.aced_script_count == 1


async def test_missing_services_are_problems(tmp_path: Path) -> None:
    async with client(tmp_path) as gateway:
        found = await gateway.summarize(samples("decision"))
    assert found.problems == ["the role 'alignment' has no service: its figures are missing"]
    assert (found.decisions.choice_count, len(found.decisions.figures)) == (12, 0)


async def test_simulations(tmp_path: Path) -> None:
    found = await summary(tmp_path, "simulation")
    assert not found.leaderboard
    assert (found.judgement_count, dict(found.abstentions_by_reason)) == (3, {"TIMED_OUT": 1})
    assert [(one.role, one.judge, one.judgement_count) for one in found.judges] == [
        ("challenge-judge", "finder", 3)
    ]
    whole, *groups = found.simulations.figures
    assert (whole.dialogue_count, sum(one.dialogue_count for one in groups)) == (3, 6)
    assert dict(whole.dialogues_by_turn_count) == {2: 3}
    assert dict(whole.dialogues_by_challenging_turn) == {0: 1, 2: 1}
    assert dict(whole.challenge_abstentions_by_reason) == {"TIMED_OUT": 1}
    assert dict(whole.dialogues_by_early_end) == {"turn 3: nothing more": 1}
    assert dict(whole.requests_by_strategy) == {"next-step": 3}
    assert whole.redirected_request_count == 2
    (scripts,) = whole.scripts
    assert (scripts.subset, scripts.simulation_kind, scripts.count) == ("last_only", "stateful", 1)


async def test_scenarios(tmp_path: Path) -> None:
    found = await summary(tmp_path, "scenarios")
    assert (found.judgement_count, dict(found.abstentions_by_reason)) == (12, {"TIMED_OUT": 2})
    whole = {one.target: one for one in found.scenarios.figures if not one.tags}
    assert list(whole) == ["option-1", "option-2", ""]
    both = whole[""]
    assert (both.model, both.form, both.scenario_count) == ("a", "verb-phrase", 12)
    assert (both.written_count, both.usable_count) == (9, 4)
    assert (both.leaking_count, both.duplicate_count) == (3, 2)
    assert dict(both.failures_by_reason) == {"REFUSED": 1}
    assert dict(both.abstentions_by_reason) == {"TIMED_OUT": 2}
    assert both.usable_rate.value == pytest.approx(4 / 10)
    assert (both.usable_rate_lowest, both.usable_rate_highest) == pytest.approx((4 / 12, 6 / 12))
    assert whole["option-1"].usable_rate.value == pytest.approx(4 / 6)
    assert found.scenarios.brief_count == 3
    assert dict(found.scenarios.unchecked_briefs_by_reason) == {"no service": 1}
    (entry,) = found.leaderboard
    assert found.leaderboard_measure == "usable"
    assert entry.mean == pytest.approx(4 / 10)


async def test_an_empty_evaluation_has_a_summary(tmp_path: Path) -> None:
    async with client(tmp_path) as gateway:
        found = await gateway.summarize([])
    assert found.sample_count == 0
    assert found.WhichOneof("kind") is None


async def test_samples_of_several_kinds_are_refused(tmp_path: Path) -> None:
    async with client(tmp_path) as gateway:
        with pytest.raises(ServiceError) as refused:
            await gateway.summarize([*samples("scripts"), *samples("graphs")])
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.violations[0].field == "samples"


async def test_too_many_groups_are_refused(tmp_path: Path) -> None:
    def many() -> list[RunSample]:
        return [
            RunSample(index=index, state=SAMPLE_STATE_SUCCEEDED, scripts=SCRIPTS[0], tags={"id": str(index)})
            for index in range(1100)
        ]

    async with client(tmp_path) as gateway:
        with pytest.raises(ServiceError) as refused:
            await gateway.summarize(many(), SummaryOptions(groupings=[TagGrouping(tags=["id"])]))
    assert refused.value.violations[0].field == "options.groupings"


def panel_sample(version: str) -> RunSample:
    """A candidate whose criterion two judges judged: one passes it, one abstains."""
    result = scripts_result("t", {"a": {"adequacy": True}})
    for judge, given in (("strict", verdict_pb2.OUTCOME_ABSTAIN), ("kind", verdict_pb2.OUTCOME_PASS)):
        one = result.candidates[0].assessments.add(candidate_id="a", role="critic", judge=judge)
        one.assessment.verdicts.add(criterion="adequacy", outcome=given)
        one.assessment.provenance.name = judge
        one.assessment.provenance.version = version if judge == "kind" else "1.0"
    return RunSample(state=SAMPLE_STATE_SUCCEEDED, scripts=result)


async def test_members_of_a_panel_are_judges_of_the_summary(tmp_path: Path) -> None:
    async with client(tmp_path) as gateway:
        found = await gateway.summarize([panel_sample("1.0"), panel_sample("1.0")])
    counts = {one.judge: (one.judgement_count, one.abstention_count) for one in found.judges}
    assert counts == {"strict": (2, 2), "kind": (2, 0)}
    assert found.judgement_count == 2
    assert not found.notices


async def test_a_judge_with_several_versions_is_noticed(tmp_path: Path) -> None:
    async with client(tmp_path) as gateway:
        found = await gateway.summarize([panel_sample("1.0"), panel_sample("1.1")])
    assert sorted((one.judge, one.version) for one in found.judges) == [
        ("kind", "1.0"),
        ("kind", "1.1"),
        ("strict", "1.0"),
    ]
    (notice,) = found.notices
    assert "judge 'kind' of the role 'critic' answered with 2 versions (kind 1.0, kind 1.1)" in notice


async def test_a_summary_takes_a_limited_number_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servicer, "MAX_SUMMARIZED_SAMPLES", 3)
    async with client(tmp_path) as gateway:
        assert (await gateway.summarize([panel_sample("1.0")] * 3)).sample_count == 3
        with pytest.raises(ServiceError) as refused:
            await gateway.summarize([panel_sample("1.0")] * 4)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.violations[0].field == "samples"
    assert "3 samples" in refused.value.violations[0].description


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
