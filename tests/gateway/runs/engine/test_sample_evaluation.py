"""Retries, outages and final results of samples, and scripts of the models under test."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_INVALID_ARGUMENT
from dramaturg.api.common.v1.provenance_pb2 import (
    PromptReference,
    Provenance,
    Usage,
)
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import DecisionsRunOptions, PairsRunOptions, RunPolicy, RunSpec
from dramaturg.api.generation.v1.authoring_decisions_pb2 import ChooseOptionResponse
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptResponse
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_FIRST,
    ROLE_ORIGIN_SUBJECTIVE_COARSE,
    ComparePairRequest,
    ComparePairResponse,
    Role,
    RoleVote,
)
from dramaturg.api.roles.v1.role_service_pb2 import GenerateRolesResponse
from dramaturg.judge.criteria import ABSEVAL, SATISFIES_CONSTRAINTS
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from gateway.evaluations.scripts.kind import ScriptsKind
from gateway.runs.engine import sample_evaluation
from gateway.runs.engine.sample_evaluation import OutageTracker
from gateway.settings import JudgeEntry
from tests.support.engines import judges_of, open_runs, runs_with, script_rows, scripts_spec
from tests.support.evaluations import CALL, contract, decision
from tests.support.gateway import Fake, agents, all_pass
from tests.support.pairs import FakeFinder, role_finder

UNAVAILABLE = verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried again soon."""
    monkeypatch.setattr(sample_evaluation, "FIRST_WAIT_SECONDS", 0.01)


def failing(code: grpc.StatusCode, retry_after: float | None = None) -> ServiceError:
    return ServiceError(
        code, error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED, "not now", retry_after=retry_after
    )


class Failing:
    """A judge that fails some times for each task, then passes everything."""

    def __init__(self, role: str, times: int, error: ServiceError) -> None:
        self.role = role
        self.times = times
        self.error = error
        self.asked: dict[str, int] = {}

    async def __call__(self, request: Any) -> Any:
        seen = self.asked[request.task.id] = self.asked.get(request.task.id, 0) + 1
        if seen <= self.times:
            raise self.error
        return all_pass(self.role)


async def test_a_judge_that_comes_back_leaves_no_abstention(sqlite_url: str) -> None:
    # Not UNAVAILABLE, which the channel itself tries again.
    judge = Failing("execute", 2, failing(grpc.StatusCode.RESOURCE_EXHAUSTED))
    async with runs_with(sqlite_url, Fake("execute", judge)) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(5)))
        samples = runs.samples(run.id)
    assert run.counts.abstentions == 0
    assert [sample.attempt_count for sample in samples] == [3] * 5
    # What the other judges were paid for the tries that are not in the results.
    assert run.counts.usage.provider_call_count == 5 * (3 * 3 + 1)


async def test_what_does_not_come_back_is_kept_as_it_is(sqlite_url: str) -> None:
    judge = Failing("execute", 99, failing(grpc.StatusCode.RESOURCE_EXHAUSTED))
    spec = scripts_spec(policy=RunPolicy(sample_attempt_count=2))
    async with runs_with(sqlite_url, Fake("execute", judge)) as runs:
        run = await runs.ended(await runs.create(spec, script_rows(2)))
        samples = runs.samples(run.id)
    assert run.state == run_pb2.RUN_STATE_PARTIAL
    assert run.counts.abstentions_by_reason == {"JUDGE_UNAVAILABLE": 6}
    assert [sample.attempt_count for sample in samples] == [2, 2]


async def test_an_outage_does_not_use_up_the_tries(sqlite_url: str) -> None:
    judge = Failing("execute", 5, failing(grpc.StatusCode.RESOURCE_EXHAUSTED))
    spec = scripts_spec(policy=RunPolicy(sample_attempt_count=1))
    async with runs_with(sqlite_url, Fake("execute", judge), outage_timeout_seconds=60) as runs:
        run = await runs.ended(await runs.create(spec, script_rows(1)))
        (sample,) = runs.samples(run.id)
    assert (sample.attempt_count, run.counts.abstentions) == (6, 0)


async def test_a_judge_says_how_long_to_wait(sqlite_url: str) -> None:
    judge = Failing("execute", 1, failing(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=0.7))
    begun = time.monotonic()
    async with runs_with(sqlite_url, Fake("execute", judge)) as runs:
        await runs.ended(await runs.create(scripts_spec(), script_rows(1)))
        assert time.monotonic() - begun >= 0.7


async def test_a_request_that_cannot_be_done_fails_at_once(sqlite_url: str) -> None:
    rows: list[Any] = script_rows(3)
    rows[1].judges.add(role="critic", judge="nobody")
    async with runs_with(sqlite_url) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), rows))
        failed = runs.samples(run.id)[1]
    assert (run.counts.succeeded, run.counts.failed) == (2, 1)
    assert failed.state == run_pb2.SAMPLE_STATE_FAILED
    assert (failed.error.code, failed.error.field) == (STATUS_CODE_INVALID_ARGUMENT, "judges[0].judge")
    assert failed.error.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN
    assert failed.attempt_count == 1


async def test_what_a_failed_attempt_cost_counts(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = ScriptsKind.evaluate

    async def fail_after_the_calls(*arguments: Any) -> Any:
        await evaluate(*arguments)
        raise RuntimeError("a defect")

    monkeypatch.setattr(ScriptsKind, "evaluate", fail_after_the_calls)
    async with runs_with(sqlite_url) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(2)))
    assert (run.counts.failed, run.counts.failures_by_reason) == (2, {"INTERNAL": 2})
    # A gold answer and three agents for each sample.
    assert run.counts.usage.provider_call_count == 2 * 4


async def test_a_sample_that_takes_too_long_abstains(sqlite_url: str) -> None:
    async def never(request: Any) -> Any:
        await asyncio.Event().wait()

    policy = RunPolicy(sample_attempt_count=1)
    policy.sample_timeout.FromSeconds(2)
    async with runs_with(sqlite_url, Fake("execute", never)) as runs:
        run = await runs.ended(await runs.create(scripts_spec(policy=policy), script_rows(1)))
    assert set(run.counts.abstentions_by_reason) == {"TIMED_OUT"}


@pytest.mark.parametrize(("most", "attempts", "fails"), [(6, 6, False), (2, 4, True)])
async def test_an_attempt_with_more_answers_than_before_is_free_when_its_time_ends(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, most: int, attempts: int, fails: bool
) -> None:
    """A slow model answers one more call in the time of each attempt, up to a number."""
    seen = 0
    evaluate = ScriptsKind.evaluate

    async def slowly(*arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == most and not fails:
            return await evaluate(*arguments)
        arguments[-1].usage.append(Usage(cache_hit_count=min(seen, most) - 1, provider_call_count=1))
        raise failing(grpc.StatusCode.DEADLINE_EXCEEDED)

    monkeypatch.setattr(ScriptsKind, "evaluate", slowly)
    spec = scripts_spec(policy=RunPolicy(sample_attempt_count=3))
    async with runs_with(sqlite_url) as runs:
        run = await runs.ended(await runs.create(spec, script_rows(1)))
        (sample,) = runs.samples(run.id)
    assert (sample.attempt_count, run.counts.failed == 1) == (attempts, fails)


class SlowModel:
    """Answers the calls of its judges one by one, and each of them once: a ledger has the answer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.turn = asyncio.Lock()
        self.answered = set[tuple[str, str]]()

    def judge(self, role: str) -> Fake:
        async def answer(request: Any) -> Any:
            call = role, request.task.id
            if call in self.answered:
                kept = all_pass(role)
                kept.provenance.usage.CopyFrom(Usage(cache_hit_count=1))
                return kept
            async with self.turn:
                await asyncio.sleep(self.seconds)
            self.answered.add(call)
            return all_pass(role)

        return Fake(role, answer)


async def test_a_slow_model_gets_through_with_fewer_samples_in_progress(sqlite_url: str) -> None:
    model = SlowModel(0.1)
    spec = scripts_spec(policy=RunPolicy(sample_attempt_count=3))
    spec.policy.sample_timeout.FromSeconds(1)
    judges = [model.judge(role) for role in ("critic", "execute", "commonsense")]
    async with runs_with(sqlite_url, *judges) as runs:
        run = await runs.ended(await runs.create(spec, script_rows(16)))
        attempts = [sample.attempt_count for sample in runs.samples(run.id)]
    # Its answers take 4.8 s: three attempts of 16 samples at once end before.
    assert (run.state, run.counts.abstentions) == (run_pb2.RUN_STATE_SUCCEEDED, 0), attempts
    assert max(attempts) > 3


async def test_decisions_are_made_by_the_runs_models(sqlite_url: str) -> None:
    async def choose(request: Any) -> Any:
        return ChooseOptionResponse(choice=CHOICE_OPTION_1, text=request.options.model, provenance=CALL)

    author = contract("author", {"ChooseOption": choose})
    async with serve(author, drain_grace_seconds=0.2) as server:
        entries = [JudgeEntry(role="author", name="fake", target=server.target)]
        async with open_runs(sqlite_url, entries) as runs:
            spec = RunSpec(decisions=DecisionsRunOptions(), models=["a", "b"])
            rows = [EvaluateDecisionsRequest(decision=decision(), gold=CHOICE_OPTION_1) for _ in range(3)]
            run = await runs.ended(await runs.create(spec, rows))
            samples = runs.samples(run.id)
    assert (run.counts.succeeded, run.counts.judgements) == (3, 6)
    assert [choice.text for choice in samples[0].decision.choices] == ["a", "b"]


@pytest.mark.parametrize("abstains", [False, True])
async def test_the_models_under_test_write_and_are_judged(sqlite_url: str, abstains: bool) -> None:
    async def write(request: Any) -> Any:
        model = request.options.model
        if model == "shy":
            return WriteScriptResponse(text="I would rather not.", failure="refused", provenance=CALL)
        if model == "lost":
            raise failing(grpc.StatusCode.INTERNAL)
        if model == "silent":
            return WriteScriptResponse(failure="empty", provenance=CALL)
        return WriteScriptResponse(text="1. Heat water.\n2. Pour.", provenance=CALL)

    spec = scripts_spec(
        models=["able", "shy", "silent", "lost", "model-0"],
        unusable_outputs_abstain=abstains,
        judges=[JudgeSelection(role="author", judge="fake")],
        policy=RunPolicy(sample_attempt_count=1),
    )
    author = contract("author", {"WriteScript": write})
    async with serve(author, drain_grace_seconds=0.2) as server, judges_of(agents()) as entries:
        entries.append(JudgeEntry(role="author", name="fake", target=server.target))
        rows: list[Any] = script_rows(1)
        rows[0].candidates[0].id = "model-0"
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(spec, rows))
            (sample,) = runs.samples(run.id)
    found = {one.candidate_id: one for one in sample.scripts.candidates}
    assert list(found) == ["model-0", "able", "shy", "silent", "model-0 (written)", "lost"]
    assert [step.text for step in found["able"].script.steps] == ["Heat water.", "Pour."]
    assert {verdict.outcome for verdict in found["able"].verdicts} == {verdict_pb2.OUTCOME_PASS}
    # Who wrote it, and how, stands beside the judges.
    writing = found["able"].assessments[-1]
    assert (writing.role, writing.judge, len(writing.assessment.verdicts)) == ("author", "fake", 0)
    assert writing.assessment.provenance.usage == CALL.usage
    unusable = {"shy": verdict_pb2.ABSTAIN_REASON_REFUSED, "silent": verdict_pb2.ABSTAIN_REASON_EMPTY}
    for name, reason in (*unusable.items(), ("lost", UNAVAILABLE)):
        fails = name != "lost" and not abstains
        # The task has no constraints, which no script can break.
        outcomes = {
            verdict.outcome for verdict in found[name].verdicts if verdict.criterion != SATISFIES_CONSTRAINTS
        }
        assert outcomes == {verdict_pb2.OUTCOME_FAIL if fails else verdict_pb2.OUTCOME_ABSTAIN}
        assert found[name].failure_reason == (reason if fails else 0)
        if not fails:
            assert {verdict.abstain_reason for verdict in found[name].verdicts} == {reason}
        assert [verdict.criterion for verdict in found[name].verdicts] == list(ABSEVAL)
        assert found[name].reading == verdict_pb2.READING_EMPTY
    # Judges for three candidates, a gold answer, and four answers of the author.
    assert sample.scripts.usage.provider_call_count == 3 * 3 + 1 + 4
    assert run.counts.judgements == 6 * 7
    not_applicable = {} if abstains else {"NOT_APPLICABLE": 2}
    refused = {"REFUSED": 7, "EMPTY": 7} if abstains else {}
    assert run.counts.abstentions_by_reason == {"JUDGE_UNAVAILABLE": 7, **not_applicable, **refused}


def test_an_outage_is_measured_once_for_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    outage = OutageTracker(10)
    assert not outage.allows_retry(100)
    outage.begin()
    assert outage.allows_retry(100)
    now[0] = 109
    outage.begin()
    # One that fails late in an outage waits for its end, not for as long again.
    assert outage.allows_retry(109)
    now[0] = 111
    assert not outage.allows_retry(109)
    outage.end()
    outage.begin()
    assert outage.allows_retry(111)
    # One that was tried all that time is not held up by a new one.
    assert not outage.allows_retry(100)


async def test_the_synthesizer_is_asked_again_where_its_model_could_not_be(sqlite_url: str) -> None:
    asked = []

    async def write(request: Any) -> Any:
        asked.append(request.task.id)
        if len(asked) < 3:
            provenance = Provenance(prompts=[PromptReference(name="synthesize")])
            return SynthesizeResponse(failure="The model could not be asked.", provenance=provenance)
        return await Fake("synthesize")._approve(request)

    async with runs_with(sqlite_url, Fake("synthesize", write)) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(1)))
        (sample,) = runs.samples(run.id)
    assert sample.attempt_count == 3
    assert not sample.scripts.gold_answer.failure


@pytest.mark.parametrize(("times", "compared"), [(2, True), (9, False)])
async def test_a_judge_that_compares_is_asked_once_with_the_gold_answer_or_without_it_at_last(
    sqlite_url: str, times: int, compared: bool
) -> None:
    written, seen = [], []

    async def write(request: Any) -> Any:
        written.append(request.task.id)
        if len(written) <= times:
            raise failing(grpc.StatusCode.RESOURCE_EXHAUSTED)
        return await Fake("synthesize")._approve(request)

    async def criticise(asked: Any) -> Any:
        seen.append(asked.request.HasField("reference"))
        return all_pass("critic")

    judges = (Fake("synthesize", write), Fake("critic", criticise))
    async with runs_with(sqlite_url, *judges, outage_timeout_seconds=0) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(1)))
        (sample,) = runs.samples(run.id)
    assert seen == [compared]
    assert sample.attempt_count == 3
    assert not run.counts.abstentions_by_reason
    assert bool(sample.scripts.gold_answer.failure) is not compared


@pytest.mark.parametrize("times", [2, 9])
async def test_roles_vote_once_all_are_there_or_without_generated_ones_at_last(
    sqlite_url: str, times: int
) -> None:
    reader = Role(type="Driver", description="Crosses it.", origin=ROLE_ORIGIN_SUBJECTIVE_COARSE)
    written, seen = [], []

    class Finder(FakeFinder):
        async def GenerateRoles(self, request: Any, context: Any) -> GenerateRolesResponse:
            written.append(request.source)
            if len(written) <= times:
                raise failing(grpc.StatusCode.RESOURCE_EXHAUSTED)
            return await super().GenerateRoles(request, context)

    async def compare(request: ComparePairRequest) -> ComparePairResponse:
        seen.append(reader in request.roles)
        votes = [RoleVote(role=role, preference=PREFERENCE_FIRST) for role in request.roles]
        return ComparePairResponse(preference=PREFERENCE_FIRST, votes=votes, provenance=CALL)

    row = EvaluatePairsRequest(
        source="It rains.", first=ComparedText(text="a"), second=ComparedText(text="b")
    )
    finder = role_finder(Finder(GenerateRolesResponse(roles=[reader])))
    async with (
        serve(finder, drain_grace_seconds=0.2) as roles,
        serve(contract("pair-judge", {"ComparePair": compare}), drain_grace_seconds=0.2) as judge,
    ):
        entries = [
            JudgeEntry(role="roles", name="fake", target=roles.target),
            JudgeEntry(role="pair-judge", name="fake", target=judge.target),
        ]
        async with open_runs(sqlite_url, entries, outage_timeout_seconds=0) as runs:
            run = await runs.ended(await runs.create(RunSpec(pairs=PairsRunOptions()), [row]))
            (sample,) = runs.samples(run.id)
    assert seen == [times == 2]
    assert sample.attempt_count == 3
    assert sample.pair.comparisons[0].comparison.preference == PREFERENCE_FIRST
