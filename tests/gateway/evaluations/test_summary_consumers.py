"""One results file of each kind has the same numbers for all consumers.

The consumers are ``show --json``, of files and of a run, GetSummary, Summarize, the report, and both
exports of a run. Each file has every ingredient that its kind can have; a test finds them in the data.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from typer.testing import CliRunner

from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNSPECIFIED, OUTCOME_ABSTAIN
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import EXPORT_FORMAT_JSONL, EXPORT_FORMAT_SAMPLES_JSONL
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from dramaturg.cli.main import app
from dramaturg.cli.summaries import as_json
from dramaturg.client import DramaturgClient
from dramaturg.datasets.json_lines import json_objects
from dramaturg.report.groupings import find_groupings
from dramaturg.report.page import Heading, render
from dramaturg.results.files import read_results
from dramaturg.results.rows import flatten
from dramaturg.testing import serve
from gateway.app import App as Gateway
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings, JudgeEntry
from services.alignment.app import App as AlignmentApp
from services.graph.app import App as GraphApp
from tests.support.evaluation_samples import KINDS, OPTIONS
from tests.support.stored_runs import address_of, exported, store_run


def made(judge: str, prompt: str = "a") -> dict[str, Any]:
    """The provenance of a judge with one of two prompts."""
    return {
        "name": judge,
        "version": "1",
        "registeredName": judge,
        "prompts": [{"name": "p", "sha256": prompt * 64}],
    }


def verdict(criterion: str, outcome: str, **fields: Any) -> dict[str, Any]:
    reason = {"abstainReason": "ABSTAIN_REASON_TIMED_OUT"} if outcome == "ABSTAIN" else {}
    return {"criterion": criterion, "outcome": f"OUTCOME_{outcome}", **reason, **fields}


def panel(role: str, place: int, *verdicts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The assessments of two judges; the second has another prompt for every second sample."""
    return [
        {
            "role": role,
            "judge": judge,
            "assessment": {
                "verdicts": given,
                "provenance": made(judge, "ab"[place % 2 if judge == "mild" else 0]),
            },
        }
        for judge, given in zip(("strict", "mild"), verdicts, strict=True)
    ]


def scripts(place: int) -> dict[str, Any]:
    executable = verdict("executable", ("PASS", "FAIL", "ABSTAIN")[place % 3])
    goal = verdict("completes_goal", "FAIL" if place == 4 else "PASS")
    both = [executable, goal]
    candidate = {"candidateId": "c", "model": "a", "script": {"steps": [{"text": "x"}] * (1 + place % 2)}}
    return {
        "task": {"id": f"t{place}", "goal": "g", "topic": ("Food", "Home")[place % 2]},
        "candidates": [
            {
                **candidate,
                "verdicts": both,
                "assessments": panel("critic", place, both, [verdict("executable", "PASS"), goal]),
            },
            {
                "candidateId": "d",
                "model": "b",
                "failureReason": "ABSTAIN_REASON_REFUSED",
                "verdicts": [verdict("executable", "FAIL"), verdict("completes_goal", "FAIL")],
            },
        ],
    }


def compared(given: str, swapped: str, judge: str, place: int) -> dict[str, Any]:
    """A comparison in both orders; those that differ are ties, one without preferences abstains."""
    if not given:
        vote: dict[str, Any] = {
            "preference": "PREFERENCE_ABSTAIN",
            "abstainReason": "ABSTAIN_REASON_TIMED_OUT",
        }
        return {"preference": "PREFERENCE_ABSTAIN", "votes": [vote]}
    agreed = f"PREFERENCE_{given if given == swapped else 'TIE'}"
    ballots = [
        {"order": "PRESENTATION_ORDER_AS_GIVEN", "preference": f"PREFERENCE_{given}"},
        {"order": "PRESENTATION_ORDER_SWAPPED", "preference": f"PREFERENCE_{swapped}"},
    ]
    share = {"PREFERENCE_FIRST": 1.0, "PREFERENCE_SECOND": 0.0}.get(agreed, 0.5)
    return {
        "preference": agreed,
        "firstVoteShare": share,
        "votes": [{"preference": agreed, "ballots": ballots, "inconsistent": given != swapped}],
        "provenance": made(judge, "ab"[place % 2]),
    }


def pairs(place: int) -> dict[str, Any]:
    given, swapped = [
        ("FIRST", "FIRST"),
        ("SECOND", "SECOND"),
        ("FIRST", "SECOND"),
        ("", ""),
        ("SECOND", "SECOND"),
    ][place]
    return {
        "id": f"p{place}",
        "firstModel": "a",
        "secondModel": "b",
        "longer": ("PREFERENCE_FIRST", "PREFERENCE_SECOND")[place % 2],
        "humanPreference": ("PREFERENCE_FIRST", "PREFERENCE_SECOND")[place % 3 > 0],
        "comparisons": [
            {"method": "roles", "judge": "strict", "comparison": compared(given, swapped, "strict", place)},
            {"method": "roles", "judge": "mild", "comparison": compared("FIRST", "FIRST", "mild", 0)},
            {"method": "llm", "judge": "strict", "comparison": compared("SECOND", "SECOND", "strict", 0)},
        ],
        "textMetrics": ["rouge-l"],
        "metricDifferences": {"rouge-l": 0.3 - 0.2 * place},
    }


def graphs(place: int) -> dict[str, Any]:
    proven = {"distance": 2 + place, "lowerBound": 2 + place, "upperBound": 2 + place, "proven": True}
    unproven = {"distance": 9, "lowerBound": 5, "upperBound": 9}
    matched = {
        "graph": {"id": "1", "events": [{"id": "1"}]},
        "distance": {**(unproven if place % 2 else proven), "mode": "DISTANCE_MODE_PROSCRIPT"},
        "textDistance": {**unproven, "mode": "DISTANCE_MODE_PROSCRIPT"},
        "embeddingDistance": {**proven, "mode": "DISTANCE_MODE_PROSCRIPT"},
        "eventMatches": {
            "matching": "EVENT_MATCHING_JUDGE",
            "service": "strict",
            "unclear": [{"eventId": "1", "reason": "several"}] * (place % 2),
            "provenances": [made("strict"), made("mild", "ab"[place % 2])],
        },
        "embeddingMatches": {"matching": "EVENT_MATCHING_EMBEDDINGS"},
        "requestedEventCount": 1 + place,
    }
    empty = {
        "distance": {**proven, "mode": "DISTANCE_MODE_PROSCRIPT"},
        "eventMatches": {"matching": "EVENT_MATCHING_TEXT"},
    }
    return {
        "reference": {"id": f"g{place}"},
        "task": "GRAPH_TASK_GENERATE",
        "graphs": [
            {"model": "a", **(matched if place != 4 else {"abstainReason": "ABSTAIN_REASON_TIMED_OUT"})},
            {"model": "b", "failureReason": "ABSTAIN_REASON_REFUSED", **empty},
        ],
    }


def decisions(place: int) -> dict[str, Any]:
    def chosen(model: str, prompt: str, swapped: bool, right: bool | None) -> dict[str, Any]:
        choice = {"model": model, "prompt": f"DECISION_PROMPT_{prompt}", "optionsSwapped": swapped}
        if right is None:
            return {**choice, "abstainReason": "ABSTAIN_REASON_UNPARSABLE"}
        return {**choice, "choice": "CHOICE_OPTION_1" if right else "CHOICE_OPTION_2", "correct": right}

    refused = {
        "model": "b",
        "prompt": "DECISION_PROMPT_NAIVE",
        "failureReason": "ABSTAIN_REASON_REFUSED",
        "correct": False,
    }
    return {
        "decision": {"id": f"d{place}"},
        "gold": "CHOICE_OPTION_1",
        "choices": [
            chosen("a", "NAIVE", False, place != 1),
            chosen("a", "NAIVE", True, None if place == 2 else place % 2 == 0),
            chosen("a", "STORY", False, place == 3),
            refused,
        ],
    }


def dialogues(place: int) -> dict[str, Any]:
    def rated(model: str, judge: str, value: float | None) -> dict[str, Any]:
        given = {"abstainReason": "ABSTAIN_REASON_TIMED_OUT"} if value is None else {"value": value}
        rating = {**given, "provenance": made(judge, "ab"[place % 2])}
        return {"model": model, "judge": judge, "rating": rating}

    aced = place == 0
    refusal = {} if aced else {"failureReason": "ABSTAIN_REASON_REFUSED"}
    return {
        "script": {
            "id": f"s{place}",
            "subset": "SCRIPT_SUBSET_LAST_ONLY",
            "task": {"name": f"task {place % 2}", "kind": "SIMULATION_KIND_STATEFUL"},
        },
        "replies": [{"model": "a", "text": "x"}, {"model": "b", **refusal}],
        "ratings": [
            rated("a", "strict", 10 if aced else 3 + place),
            rated("a", "mild", 10 if aced else None if place == 3 else 7),
            rated("b", "strict", 10 if aced else 1),
            rated("b", "mild", 10 if aced else 1),
        ],
        "comparisons": [
            {
                "firstModel": "a",
                "secondModel": "b",
                "judge": "pairs",
                "comparison": compared(
                    *(("FIRST", "SECOND") if place == 1 else ("FIRST", "FIRST")), "pairs", place
                ),
            }
        ],
        "scores": [{"model": "a", "judge": "tox", "attribute": "toxicity", "score": {"value": 0.1 * place}}],
    }


def texts(place: int) -> dict[str, Any]:
    polite = verdict("polite", ("PASS", "FAIL", "ABSTAIN")[place % 3])
    clear = verdict("clear", "SCORED", score=1 + place % 5)
    return {
        "task": {"id": f"t{place}", "goal": "g"},
        "criteria": [
            {"id": "polite", "passes": "It greets."},
            {"id": "clear", "description": "Clear.", "scale": {"lowest": 1, "highest": 5}},
        ],
        "texts": [
            {
                "textId": "a",
                "model": "a",
                "text": "x",
                "verdicts": [polite, clear],
                "assessments": panel(
                    "rubric-judge",
                    place,
                    [polite, clear],
                    [verdict("polite", "PASS"), verdict("clear", "SCORED", score=2)],
                ),
            },
            {
                "textId": "b",
                "model": "b",
                "failureReason": "ABSTAIN_REASON_EMPTY",
                "verdicts": [verdict("polite", "FAIL"), verdict("clear", "SCORED", score=1)],
            },
        ],
    }


COUNT = 5
RUN = "20260131-120000-9f3a1c2b54"
DATA = {
    "scripts": (scripts, {"abstention", "failure", "panel", "two prompts"}),
    "pair": (pairs, {"abstention", "panel", "two prompts", "both orders", "inconsistent orders"}),
    "graphs": (graphs, {"abstention", "failure", "panel", "two prompts", "unproven", "three matchings"}),
    "decision": (decisions, {"abstention", "failure", "two prompts", "both orders"}),
    "dialogue": (
        dialogues,
        {"abstention", "failure", "panel", "two prompts", "both orders", "inconsistent orders", "aced"},
    ),
    "texts": (texts, {"abstention", "failure", "panel", "two prompts"}),
}
"""By the member of the result: its results by position, and the ingredients that they have."""


def result_folder(folder: Path, kind: str) -> Path:
    """Five results with tags and one failed sample, as an evaluate command writes them."""
    results = []
    for place in range(COUNT):
        tags = {"level": ("high", "low")[place % 2], "source": str(place % 3)}
        results.append(
            {**DATA[kind][0](place), "tags": tags, "usage": {"providerCallCount": "3", "costUsd": 0.1}}
        )
    folder.mkdir()
    (folder / "results.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in results), encoding="utf-8"
    )
    error = {
        "index": COUNT,
        "line": COUNT + 1,
        "code": "UNAVAILABLE",
        "reason": "PROVIDER_UNAVAILABLE",
        "message": "gone",
    }
    (folder / "errors.jsonl").write_text(json.dumps(error) + "\n", encoding="utf-8")
    return folder


def ingredients(samples: Sequence[RunSample]) -> Iterator[str]:
    """The ingredients that the samples have."""
    rows = [row for sample in samples for row in flatten(sample)]
    if any(row.outcome == OUTCOME_ABSTAIN for row in rows):
        yield "abstention"
    if any(row.failure_reason != ABSTAIN_REASON_UNSPECIFIED for row in rows):
        yield "failure"
    if any(row.measure.endswith(" (aced)") for row in rows):
        yield "aced"
    text = "\n".join(json.dumps(MessageToDict(sample)) for sample in samples)
    if '"strict"' in text and '"mild"' in text:
        yield "panel"
    if ("a" * 64 in text and "b" * 64 in text) or ("PROMPT_NAIVE" in text and "PROMPT_STORY" in text):
        yield "two prompts"
    if "ORDER_SWAPPED" in text or '"optionsSwapped": true' in text:
        yield "both orders"
    if '"inconsistent": true' in text:
        yield "inconsistent orders"
    distances = [
        graph.distance for one in samples for graph in one.graphs.graphs if graph.HasField("distance")
    ]
    if any(not one.proven for one in distances):
        yield "unproven"
    if any(graph.HasField("embedding_distance") for one in samples for graph in one.graphs.graphs):
        yield "three matchings"


def tables(page: str) -> Sequence[str]:
    """The tables of a report, as HTML."""
    return re.findall(r"<table.*?</table>", page, re.DOTALL)


@pytest.mark.parametrize("kind", DATA)
async def test_all_consumers_have_the_same_numbers(tmp_path: Path, kind: str) -> None:
    folder = result_folder(tmp_path / "out", kind)
    samples = list(read_results(folder))
    for index, sample in enumerate(samples):
        sample.index, sample.attempt_count = index, 1
    assert set(ingredients(samples)) == DATA[kind][1]
    store_run(address_of(tmp_path), RUN, samples)
    async with AsyncExitStack() as stack:
        judges = []
        for service in (AlignmentApp(), GraphApp()):
            server = await stack.enter_async_context(serve(*await stack.enter_async_context(service.open())))
            judges.append(JudgeEntry(role=service.name, name="built-in", target=server.target))
        gateway = Gateway(
            GatewaySettings(judges=tuple(judges)), RunsSettings(enabled=True, url=address_of(tmp_path))
        )
        contracts = await stack.enter_async_context(gateway.open())
        target = (await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))).target
        client = await stack.enter_async_context(DramaturgClient(target))

        async def command(*arguments: str) -> dict[str, Any]:
            groups = ("--group-by", "level", "--group-by", "level,source", "--target", target, "--json")
            done = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *groups])
            assert done.exit_code == 0, done.output
            printed: dict[str, Any] = json.loads(done.stdout)
            return printed

        found = await client.summarize(read_results(folder), OPTIONS)
        assert found.WhichOneof("kind") == KINDS.get(kind, kind)
        assert not found.problems
        assert (found.sample_count, found.failed_sample_count) == (COUNT + 1, 1)
        numbers = json.dumps(as_json(found))
        # GetSummary.
        of_run = (await client.runs.summary(RUN, OPTIONS)).summary
        assert json.dumps(as_json(of_run)) == numbers
        # The commands.
        printed = await command("show", str(folder))
        assert printed.pop("results") == str(folder)
        assert json.dumps(printed) == numbers
        printed = await command("show", RUN)
        assert printed.pop("results") == RUN
        assert json.dumps(printed) == numbers
        if kind == "scripts":
            await a_run_is_compared_with_files(folder, target, tmp_path / "compared.html")
        # The export of samples, which has no failed ones.
        file = await exported(client, tmp_path / "samples.jsonl", EXPORT_FORMAT_SAMPLES_JSONL, RUN)
        again = await client.summarize(read_results(file), OPTIONS)
        without_failures = type(found).FromString(found.SerializeToString())
        for one in (again, without_failures):
            for name in ("sample_count", "failed_sample_count", "failures_by_reason"):
                one.ClearField(name)
        assert as_json(again) == as_json(without_failures)
        # The export of judgements.
        file = await exported(client, tmp_path / "judgements.jsonl", EXPORT_FORMAT_JSONL, RUN)
        values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for _, record in json_objects(file):
            row = ParseDict(record, RunResult())
            if row.HasField("value"):
                values[row.model, row.measure].append(row.value)
        assert {
            (entry.model, measure): mean
            for entry in found.leaderboard
            for measure, mean in entry.means_by_measure.items()
        } == {key: sum(some) / len(some) for key, some in values.items()}
        # The report.
        page = b"".join([piece async for piece in client.runs.report(RUN)]).decode()
        options: SummaryOptions = find_groupings(samples).options()
        shown = await client.summarize(read_results(folder), options)
    own = "".join(render(Heading("x"), shown, samples))
    assert tables(page) == tables(own)
    assert len(tables(page)) > 3
    for entry in shown.leaderboard:
        assert f"<bdi>{entry.judged_count:,} of {entry.judgement_count:,}</bdi>" in page


async def a_run_is_compared_with_files(folder: Path, target: str, page: Path) -> None:
    def invoked(*arguments: object) -> Any:
        return CliRunner().invoke(app, [*map(str, arguments), "--target", target])

    report = await asyncio.to_thread(invoked, "report", folder, RUN, "--out", page)
    assert report.exit_code == 0, report.output
    assert "(0 judgements differ)" in report.stdout
    assert RUN in await asyncio.to_thread(page.read_text)
    compared = await asyncio.to_thread(invoked, "compare", folder, RUN, "--json")
    assert json.loads(compared.stdout)["baseline"] == folder.name, compared.output


def test_every_ingredient_is_in_some_file() -> None:
    """Those of the requirement: a kind has an ingredient wherever its contract has it."""
    everything = set().union(*(wanted for _, wanted in DATA.values()))
    assert everything >= {"abstention", "failure", "two prompts", "both orders", "panel", "aced", "unproven"}
