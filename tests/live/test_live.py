"""Every kind of evaluation and some judges with a model that answers, at whatever endpoint.

``make test-live MODEL=... OPENAI_BASE_URL=...`` runs this module; without a model it is skipped. It makes
some 40 calls. It asserts that answers are valid, that judgements are made and that calls are bounded, and of
verdicts only how many are right over all easy items: a small model may judge any single one wrongly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from typer.testing import CliRunner

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1, CHOICE_OPTION_2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueScript, EvaluateDialoguesRequest
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest
from dramaturg.cli.main import app
from dramaturg.cli.platform import PARTIAL
from dramaturg.formats.messages import read_messages
from tests.support.evaluations import decision
from tests.support.graphs import message

# Read at once: a fixture hides the developer's providers from all tests.
ENDPOINT = {name: os.environ.get(name, "") for name in ("MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY")}

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not ENDPOINT["MODEL"], reason="no model: make test-live MODEL=... OPENAI_BASE_URL=..."
    ),
]

SECONDS = "900"
"""The time limit of a sample: a slow machine writes a few tokens a second."""
LEAST_COVERAGE = 0.75
LEAST_ACCURACY = 0.5
EASY_JUDGES = ("rubric-judge", "rating-judge", "challenge-judge")


def scripts() -> Iterable[Message]:
    good = "1. Fill a pot with water.\n2. Boil the water on the stove.\n3. Pour it over a tea bag in a cup."
    bad = "1. Put the cup into the freezer.\n2. Put the cup into the freezer.\n3. Sell the stove."
    yield EvaluateScriptsRequest(
        task=Task(goal="Make a cup of tea without a kettle", constraints=["without a kettle"]),
        candidates=[Candidate(id="good", text=good), Candidate(id="bad", text=bad)],
    )


def pairs() -> Iterable[Message]:
    yield EvaluatePairsRequest(
        id="bridge",
        source="The council closed the old bridge on Monday, because of cracks in two pillars.",
        first=ComparedText(
            text="The council closed the old bridge on Monday because of cracks in two pillars."
        ),
        second=ComparedText(text="The council opened a new bridge."),
    )


def decisions() -> Iterable[Message]:
    labelled = {
        "has a telephone but no internet": CHOICE_OPTION_1,
        "has lost his voice": CHOICE_OPTION_2,
    }
    for number, (scenario, gold) in enumerate(labelled.items()):
        yield EvaluateDecisionsRequest(decision=decision(scenario, id=str(number)), gold=gold)


def dialogues() -> Iterable[Message]:
    task = SimulationTask(
        name="Calculator",
        description="Act as a calculator that prints the result and nothing else.",
        kind=dialogue_pb2.SIMULATION_KIND_STATELESS,
    )
    said = Utterance(speaker=dialogue_pb2.SPEAKER_USER, text="12 * 12")
    yield EvaluateDialoguesRequest(script=DialogueScript(id="sum", task=task, utterances=[said]))


def graphs() -> Iterable[Message]:
    events = {"a": "mix the dough", "b": "bake the dough in the oven", "c": "eat the cake"}
    graph = message("a>b b>c", events, "cake")
    graph.scenario = "bake a cake"
    yield EvaluateGraphsRequest(reference=graph)


def grounded() -> Iterable[Message]:
    document = Document(text="The green kettle holds 1.7 litres. It switches itself off. It costs 29 euros.")
    yield EvaluateTextsRequest(
        task=Task(goal="Tell me about the green kettle.", context=[document]),
        texts=[
            EvaluatedText(id="true", text="The kettle holds 1.7 litres and switches itself off."),
            EvaluatedText(id="planted", text="The kettle holds 1.7 litres. It won a prize last year."),
        ],
    )


def runs() -> Iterable[Message]:
    asked = {"role": "user", "content": "When does the city library open on Friday?"}
    called = {
        "role": "assistant",
        "tool_calls": [{"id": "1", "function": {"name": "opening_hours", "arguments": '{"day": "Friday"}'}}],
    }
    told = {"role": "tool", "tool_call_id": "1", "content": "10 to 18"}
    conversation = read_messages([asked, called, told, {"role": "assistant", "content": "It opens at 10."}])
    yield EvaluateTextsRequest(
        task=Task(goal=asked["content"]), texts=[EvaluatedText(id="run", conversation=conversation)]
    )


KINDS: dict[str, tuple[Callable[[], Iterable[Message]], tuple[str, ...], int]] = {
    # One for the pool; three agents of two candidates.
    "scripts": (scripts, (), 7),
    # Two orders.
    "pairs": (pairs, ("--sweep", "0", "--set", "text_metrics="), 2),
    "decisions": (decisions, ("--model", "MODEL"), 2),
    # A reply and its rating.
    "dialogues": (dialogues, ("--model", "MODEL"), 2),
    "graphs": (graphs, ("--model", "MODEL"), 1),
    "texts with context": (grounded, ("--criteria", "builtin:groundedness"), 2),
    "texts of agents": (runs, ("--criteria", "builtin:tool_use"), 1),
}
"""Rows, options and calls of each kind, the first word of the name."""


@pytest.fixture(autouse=True)
def _endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    monkeypatch.setenv("DRAMATURG_GATEWAY_JUDGE_TIMEOUT_SECONDS", SECONDS)
    # A call without a deadline may not end before one of its judges does.
    for deadline in ("DEFAULT", "MAXIMUM"):
        monkeypatch.setenv(f"DRAMATURG_SERVER_{deadline}_DEADLINE_SECONDS", str(2 * int(SECONDS)))
    for name, value in ENDPOINT.items():
        if value:
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_evaluated_with_few_abstentions_and_bounded_calls(name: str, tmp_path: Path) -> None:
    make, options, call_count = KINDS[name]
    kind = name.split()[0]
    rows = [json.dumps(MessageToDict(one)) + "\n" for one in make()]
    file = tmp_path / f"{kind}.jsonl"
    file.write_text("".join(rows), encoding="utf-8")
    told = [ENDPOINT["MODEL"] if option == "MODEL" else option for option in options]
    out = tmp_path / "out"
    arguments = ["eval", "--kind", kind, str(file), *told, "--out", str(out), "--json", "--timeout", SECONDS]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code in (0, PARTIAL), result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    assert (summary["sample_count"], summary["failed_sample_count"]) == (len(rows), 0)
    assert len((out / "results.jsonl").read_text(encoding="utf-8").splitlines()) == len(rows)
    reasons: dict[str, int] = summary["abstentions_by_reason"]
    made = 1 - sum(reasons.values()) / summary["judgement_count"]
    assert made >= LEAST_COVERAGE, reasons
    # Each answer may be repaired once, and each judge may ask once more for what an answer lacks.
    assert 0 < summary["usage"]["provider_call_count"] <= 4 * call_count


def test_judges_are_right_about_most_easy_items() -> None:
    judges = [part for name in EASY_JUDGES for part in ("--judge", name)]
    arguments = [
        "research",
        "prompts",
        "bench",
        *judges,
        "--json",
        "--concurrency",
        "2",
        "--timeout",
        SECONDS,
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    rates = json.loads(result.stdout)["judges"]
    assert {one["judge"] for one in rates} == set(EASY_JUDGES)
    right = sum(one["detected"][0] + one["false_alarms"][1] - one["false_alarms"][0] for one in rates)
    abstained = sum(one["abstained"][0] for one in rates)
    count = sum(one["abstained"][1] for one in rates)
    assert abstained <= (1 - LEAST_COVERAGE) * count, rates
    # An abstention on flawless material is no false alarm, and is not right either.
    assert right - abstained >= LEAST_ACCURACY * count, rates
