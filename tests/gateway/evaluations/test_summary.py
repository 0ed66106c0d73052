"""A results file and a run of the same samples have one summary."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from dramaturg.api.alignment.v1.accuracy_pb2 import ABSTENTION_POLICY_EXCLUDED
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1, CHOICE_OPTION_2, Decision
from dramaturg.api.common.v1.dialogue_pb2 import (
    SIMULATION_KIND_STATEFUL,
    SPEAKER_USER,
    SimulationTask,
    Utterance,
)
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_UNAVAILABLE
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_REFUSED,
    ABSTAIN_REASON_TIMED_OUT,
    ABSTAIN_REASON_UNSPECIFIED,
    Assessment,
    Verdict,
)
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    SCRIPT_SUBSET_LAST_ONLY,
    DialogueResult,
    DialogueScript,
    ModelReply,
    ReplyRating,
    SimulatedDialogue,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import GraphsResult, MeasuredGraph
from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_SUCCEEDED,
    Dataset,
    DatasetManifest,
    RunSample,
    RunSpec,
    SampleError,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import (
    EXPORT_FORMAT_JSONL,
    EXPORT_FORMAT_SAMPLES_JSONL,
    CompareRunsRequest,
    ExportFormat,
)
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WrittenScenario
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.evaluation.v1.summary_pb2 import ModelFailures, Summary, SummaryOptions, TagGrouping
from dramaturg.api.evaluation.v1.texts_pb2 import TextResult, TextsResult
from dramaturg.api.generation.v1.authoring_decisions_pb2 import SCENARIO_FORM_VERB_PHRASE
from dramaturg.api.graph.v1.graph_service_pb2 import EdgeCounts, EdgeMeasures, EdgeScore
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Ballot, ComparePairResponse, RoleVote
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.cli.summaries import as_json
from dramaturg.client import DramaturgClient
from dramaturg.datasets.json_lines import json_objects
from dramaturg.judge.verdicts import abstained, failed, passed, scored
from dramaturg.results.files import read_results
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from gateway import servicer
from gateway.app import App as Gateway
from gateway.runs.settings import RunsSettings
from gateway.runs.store import open_store
from gateway.settings import GatewaySettings, JudgeEntry
from services.alignment.app import App as AlignmentApp
from services.graph.app import App as GraphApp
from tests.dramaturg.summaries.test_one_figure import DECISIONS, DIALOGUES, GRAPHS, outcome
from tests.support.results import scripts_result
from tests.support.runs import create, rows
from tests.support.texts import CLEAR, POLITE


def edge_score(shared: int) -> EdgeScore:
    counts = EdgeCounts(predicted=shared, reference=1, shared=shared)
    return EdgeScore(counts=counts, measures=EdgeMeasures(f1=shared), exact_match=shared == 1)


SCRIPTS = [
    scripts_result("t1", {"a": {"adequacy": True, "other": None}, "b": {"adequacy": False, "other": True}}),
    scripts_result("t2", {"a": {"adequacy": True, "other": True}, "b": {"adequacy": None, "other": None}}),
    scripts_result("t3", {"a": {"adequacy": False, "other": True}, "b": {"adequacy": False, "other": True}}),
]

FIRST, SECOND = pairs.PREFERENCE_FIRST, pairs.PREFERENCE_SECOND


def comparison(given: int, swapped: int) -> ComparePairResponse:
    """The vote of one role with its ballots in both orders."""
    vote = given if given == swapped else pairs.PREFERENCE_TIE
    return ComparePairResponse(
        votes=[
            RoleVote(
                preference=pairs.Preference.ValueType(vote),
                ballots=[
                    Ballot(
                        order=pairs.PRESENTATION_ORDER_AS_GIVEN,
                        preference=pairs.Preference.ValueType(given),
                    ),
                    Ballot(
                        order=pairs.PRESENTATION_ORDER_SWAPPED,
                        preference=pairs.Preference.ValueType(swapped),
                    ),
                ],
            )
        ],
        preference=pairs.Preference.ValueType(vote),
        first_vote_share=1.0 if vote == FIRST else 0.0 if vote == SECOND else 0.5,
    )


PAIRS = [
    PairResult(
        id=str(place),
        first_model="a",
        second_model="b",
        human_preference=human,
        longer=longer,
        comparisons=[PairComparison(method="roles", judge="j", comparison=comparison(given, swapped))],
        text_metrics=["rouge-l"],
        metric_differences={"rouge-l": 0.25 if human == FIRST else -0.5},
    )
    # The last vote prefers the text that is presented first in both orders.
    for place, (human, longer, given, swapped) in enumerate(
        [
            (FIRST, FIRST, FIRST, FIRST),
            (SECOND, FIRST, SECOND, SECOND),
            (FIRST, SECOND, SECOND, SECOND),
            (SECOND, SECOND, FIRST, SECOND),
        ]
    )
]


def judged_text(model: str, *judged: Sequence[Verdict]) -> TextResult:
    """A text with the verdicts of each judge; those of the first count."""
    assessments = [
        CandidateAssessment(role="rubric-judge", judge=f"j{index}", assessment=Assessment(verdicts=verdicts))
        for index, verdicts in enumerate(judged)
    ]
    return TextResult(text_id=model, model=model, verdicts=judged[0], assessments=assessments)


TEXTS = [
    TextsResult(
        criteria=[POLITE, CLEAR],
        texts=[
            judged_text(
                "a",
                [passed("polite"), scored("clear", 2 + place)],
                [failed("polite"), abstained("clear", ABSTAIN_REASON_REFUSED)],
            ),
            judged_text("b", [failed("polite"), abstained("clear", ABSTAIN_REASON_TIMED_OUT)]),
        ],
    )
    for place in range(3)
]
SIMULATIONS = [
    SimulatedDialogue(
        task=SimulationTask(name="shell", kind=SIMULATION_KIND_STATEFUL),
        utterances=[
            Utterance(speaker=SPEAKER_USER, text="act"),
            Utterance(speaker=SPEAKER_USER, text="go on", strategy="next-step"),
        ],
        turn_count=2,
        challenging_turn=turn,
        challenge_abstain_reason=ABSTAIN_REASON_TIMED_OUT if turn is None else ABSTAIN_REASON_UNSPECIFIED,
        ended_early="turn 3: nothing more" if turn is None else "",
        scripts=[
            DialogueScript(task=SimulationTask(kind=SIMULATION_KIND_STATEFUL), subset=SCRIPT_SUBSET_LAST_ONLY)
        ]
        * (turn == 0),
        challenge_judge="finder",
    )
    for turn in (0, 2, None)
]
SCENARIOS = [
    ScenariosResult(
        id=f"b{place}",
        form=SCENARIO_FORM_VERB_PHRASE,
        duplicates_unchecked="" if place else "no service",
        scenarios=[
            WrittenScenario(id="option-1/0", model="a", target=CHOICE_OPTION_1, scenario="is late"),
            WrittenScenario(
                id="option-1/1",
                model="a",
                target=CHOICE_OPTION_1,
                scenario="is late too",
                duplicate_of="option-1/0" if place else "",
            ),
            WrittenScenario(
                id="option-2/0", model="a", target=CHOICE_OPTION_2, scenario="takes a car", leaks_option=True
            ),
            WrittenScenario(
                id="option-2/1",
                model="a",
                target=CHOICE_OPTION_2,
                failure_reason=ABSTAIN_REASON_UNSPECIFIED if place else ABSTAIN_REASON_REFUSED,
                abstain_reason=ABSTAIN_REASON_TIMED_OUT if place else ABSTAIN_REASON_UNSPECIFIED,
            ),
        ],
    )
    for place in range(3)
]
RESULTS: dict[str, Sequence[Message]] = {
    "scenarios": SCENARIOS,
    "scripts": SCRIPTS,
    "pair": PAIRS,
    "graphs": GRAPHS,
    "decision": DECISIONS,
    "dialogue": DIALOGUES,
    "texts": TEXTS,
    "simulation": SIMULATIONS,
}
KINDS = {"decision": "decisions", "dialogue": "dialogues", "pair": "pairs", "simulation": "simulations"}
"""Kinds by the member of the result, where the names differ."""
OPTIONS = SummaryOptions(groupings=[TagGrouping(tags=["level"]), TagGrouping(tags=["level", "source"])])


def samples(kind: str) -> list[RunSample]:
    """Samples with tags, and a failed one."""
    found = []
    for index, result in enumerate(RESULTS[kind]):
        tags = {"level": "low" if index % 2 else "high", "source": str(index % 3)}
        sample = RunSample(
            index=index, sample_id=f"s{index}", state=SAMPLE_STATE_SUCCEEDED, tags=tags, attempt_count=1
        )
        getattr(sample, kind).CopyFrom(result)
        found.append(sample)
    error = SampleError(
        code=STATUS_CODE_UNAVAILABLE,
        reason=error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
        message="gone",
    )
    found.append(
        RunSample(
            index=len(found),
            sample_id=f"s{len(found)}",
            state=SAMPLE_STATE_FAILED,
            error=error,
            attempt_count=1,
        )
    )
    return found


def kind_of(some: Sequence[RunSample]) -> str:
    return some[0].WhichOneof("result") or ""


def store_run(address: str, run_id: str, some: Sequence[RunSample]) -> None:
    store = open_store(address)
    kind = KINDS.get(name := kind_of(some), name)
    spec = RunSpec(dataset=Dataset(content=b""))
    getattr(spec, kind).SetInParent()
    create(store, run_id, spec=spec)
    stored = zip(rows(range(len(some))), some, strict=True)
    store.add_samples(run_id, [replace(row, tags=dict(sample.tags)) for row, sample in stored])
    store.set_manifest(run_id, DatasetManifest(sha256="x"))
    store.change_state(run_id, RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    run = store.get_run(run_id)
    assert run is not None
    store.take_samples(run_id, range(len(some)), "here")
    store.finish_samples(run_id, run.attempt, [outcome(sample) for sample in some])
    store.close()


@asynccontextmanager
async def client(folder: Path, *roles: str) -> AsyncIterator[DramaturgClient]:
    """A client of the gateway of ``gateway_address``."""
    async with gateway_address(folder, *roles) as target, DramaturgClient(target) as gateway:
        yield gateway


@asynccontextmanager
async def gateway_address(folder: Path, *roles: str) -> AsyncIterator[str]:
    """A gateway with the run store in a folder, and with the statistics services of the roles."""
    async with AsyncExitStack() as stack:
        judges = []
        for app in (AlignmentApp(), GraphApp()):
            if app.name not in roles:
                continue
            contracts = await stack.enter_async_context(app.open())
            server = await stack.enter_async_context(serve(*contracts))
            judges.append(JudgeEntry(role=app.name, name="built-in", target=server.target))
        gateway = Gateway(
            GatewaySettings(judges=tuple(judges)), RunsSettings(enabled=True, url=address_of(folder))
        )
        contracts = await stack.enter_async_context(gateway.open())
        yield (await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))).target


def address_of(folder: Path) -> str:
    return f"sqlite:///{folder}/runs.sqlite3"


async def exported(gateway: DramaturgClient, file: Path, form: ExportFormat.ValueType) -> Path:
    content = b"".join([piece async for piece in gateway.runs.export("run", form)])
    await asyncio.to_thread(file.write_bytes, content)
    return file


async def assert_consumers_agree(
    gateway: DramaturgClient, folder: Path, some: Sequence[RunSample], found: Summary
) -> None:
    """The report, the export of judgements and the export of samples have the figures of the summary."""
    page = b"".join([piece async for piece in gateway.runs.report("run")]).decode()
    for entry in found.leaderboard:
        assert f"<bdi>{entry.judged_count:,} of {entry.judgement_count:,}</bdi>" in page

    values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    file = await exported(gateway, folder / "judgements.jsonl", EXPORT_FORMAT_JSONL)
    for _, record in json_objects(file):
        row = ParseDict(record, RunResult())
        if row.HasField("value"):
            values[row.model, row.measure].append(row.value)
    means = {
        (entry.model, measure): mean
        for entry in found.leaderboard
        for measure, mean in entry.means_by_measure.items()
    }
    if found.leaderboard:
        assert means == {key: sum(some) / len(some) for key, some in values.items()}

    file = await exported(gateway, folder / "samples.jsonl", EXPORT_FORMAT_SAMPLES_JSONL)
    whole = await gateway.summarize(some, SummaryOptions())
    again = await gateway.summarize(read_results(file), SummaryOptions())
    for name in ("failed_sample_count", "failures_by_reason", "sample_count"):
        whole.ClearField(name)
        again.ClearField(name)
    assert str(again) == str(whole)
    assert as_json(again) == as_json(whole)


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
    assert roles.inconsistent_share == pytest.approx(1 / 4)
    assert roles.first_presented_share == pytest.approx(5 / 8)
    assert roles.longer_share == pytest.approx(2 / 3)
    assert methods["rouge-l"].baseline
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
    assert (distances.mean, distances.mean_lower_bound, distances.proven_count) == (5.5, 3.5, 1)


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


REFUSED = ABSTAIN_REASON_REFUSED
FAILING: dict[str, Sequence[Message]] = {
    "scripts": [
        scripts_result(f"t{place}", {"good": {"adequacy": place < 2}, "shy": {"adequacy": False}})
        for place in range(3)
    ],
    "graphs": [
        GraphsResult(
            reference=ScriptGraph(id="r"),
            graphs=[
                MeasuredGraph(model="good", graph=ScriptGraph(id="1"), score=edge_score(1)),
                MeasuredGraph(model="shy", failure_reason=REFUSED, score=edge_score(0)),
            ],
        )
        for _ in range(3)
    ],
    "decision": [
        DecisionResult(
            decision=Decision(id="d"),
            gold=CHOICE_OPTION_1,
            choices=[
                ModelChoice(model="good", choice=CHOICE_OPTION_1, correct=True),
                ModelChoice(model="shy", failure_reason=REFUSED, correct=False),
            ],
        )
        for _ in range(3)
    ],
    "dialogue": [
        DialogueResult(
            script=DialogueScript(id="s"),
            replies=[ModelReply(model="good"), ModelReply(model="shy", failure_reason=REFUSED)],
            ratings=[
                ReplyRating(model="good", judge="j", rating=Rating(value=8)),
                ReplyRating(model="shy", judge="j", rating=Rating(value=1)),
            ],
        )
        for _ in range(3)
    ],
}
for _result in FAILING["scripts"]:
    _result.candidates[1].failure_reason = REFUSED  # type: ignore[attr-defined]  # a ScriptsResult


@pytest.mark.parametrize(("kind", "worst"), [("scripts", 0), ("graphs", 0), ("decision", 0), ("dialogue", 1)])
async def test_failures_of_a_model_lower_its_mean_and_are_no_abstentions(
    tmp_path: Path, kind: str, worst: float
) -> None:
    some = [
        RunSample(index=index, sample_id=f"s{index}", state=SAMPLE_STATE_SUCCEEDED, attempt_count=1)
        for index in range(3)
    ]
    for sample, result in zip(some, FAILING[kind], strict=True):
        getattr(sample, kind).CopyFrom(result)
    store_run(address_of(tmp_path), "run", some)
    measures = 2 if kind == "graphs" else 1
    async with client(tmp_path, "alignment", "graph") as gateway:
        found = await gateway.summarize(some)
        of_run = await gateway.runs.summary("run")
        await assert_consumers_agree(gateway, tmp_path, some, found)
        stored = [row async for row in gateway.runs.results("run", numbers_only=True)]
        table = await gateway.runs.results("run").to_arrow()
    assert table["failure_reason"].to_pylist() == ([None] * measures + ["REFUSED"] * measures) * 3
    assert str(of_run.summary) == str(found)
    assert not found.problems
    good, shy = found.leaderboard
    assert (good.model, good.rank, shy.model, shy.rank) == ("good", 1, "shy", 2)
    assert (shy.mean, shy.mean_lowest, shy.mean_highest, shy.coverage) == (worst, worst, worst, 1)
    assert not found.abstentions_by_reason
    (failures,) = found.model_failures
    assert failures == ModelFailures(model="shy", reason="REFUSED", judgement_count=3 * measures)
    assert {(row.model, row.abstain_reason, row.failure_reason) for row in stored} == {
        ("good", 0, 0),
        ("shy", 0, REFUSED),
    }
    if kind == "decision":
        wrong = next(one for one in found.decisions.figures if one.model == "shy")
        assert (wrong.accuracy.accuracy.value, wrong.accuracy_abstentions_right) == (0, 0)
    if kind == "graphs":
        failed = next(one for one in found.graphs.figures if one.model == "shy")
        assert (failed.edges.macro.f1, failed.graph_count) == (0, 3)
    if kind == "dialogue":
        assert [one.judgement_count for one in found.judges] == [3]
        assert found.dialogues.unusable_replies[0].reason == "REFUSED"


async def test_missing_services_are_problems(tmp_path: Path) -> None:
    async with client(tmp_path) as gateway:
        found = await gateway.summarize(samples("decision"))
    assert found.problems == ["the role 'alignment' has no service: its figures are missing"]
    assert found.decisions.choice_count == 12


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


async def test_runs_are_compared(tmp_path: Path) -> None:
    before, after = samples("scripts"), samples("scripts")
    verdict = after[0].scripts.candidates[0].verdicts[0]
    verdict.outcome = verdict_pb2.OUTCOME_FAIL
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
