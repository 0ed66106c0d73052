"""The kinds of evaluation: their rows, their runs, and the services that they need."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from dramaturg.api.common.v1 import decision_pb2, dialogue_pb2
from dramaturg.api.evaluation.v1 import decisions_pb2, dialogues_pb2, scripts_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest, RolePlan
from dramaturg.api.evaluation.v1.run_pb2 import (
    DecisionsRunOptions,
    DialoguesRunOptions,
    GraphsRunOptions,
    PairsRunOptions,
    RunLimits,
    RunSpec,
    ScriptsRunOptions,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from tests.support.engines import lines

SAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "scripts" / "tasks.jsonl"

EVENTS = (
    "decide what to cook",
    "buy the ingredients",
    "wash the vegetables",
    "heat the pan",
    "cook the meal",
    "set the table",
    "serve the meal",
)


@dataclass(frozen=True)
class Kind:
    """A kind of evaluation."""

    services: Mapping[str, str]
    """The services beside generation and the gateway, by the role that each serves. The role of generation
    itself is ``generation``'s.
    """
    calls: int
    """The model calls of one sample."""
    parallel_calls: int
    """How many of them are made at once."""
    row: Callable[[int], Message]
    """A sample that is like every other but for its number."""
    options: RunSpec
    """The run's options."""
    answer: str = ""
    """What the model answers. Empty: all verdicts PASS, or the smallest JSON that fits the schema."""

    def run(self, numbers: Iterable[int], calls_at_once: int) -> RunSpec:
        """A run.

        Args:
            numbers: A number for each sample, which no other has.
            calls_at_once: How many model calls the samples under way may have at once.
        """
        spec = RunSpec(limits=RunLimits(max_concurrent_samples=max(1, calls_at_once // self.parallel_calls)))
        spec.MergeFrom(self.options)
        spec.dataset.content = lines([self.row(number) for number in numbers])
        return spec


def scripts(number: int, candidates: int = 1) -> EvaluateScriptsRequest:
    """The first task of the samples with copies of its first candidate; each copy has a distinct step."""
    sample = _sample()
    made = ParseDict({"task": sample["task"]}, EvaluateScriptsRequest())
    made.task.id = str(number)
    for index in range(candidates):
        candidate = ParseDict(sample["candidates"][0], made.candidates.add())
        candidate.id = candidate.model = f"model-{index}"
        candidate.script.steps.add(text=f"Write down the numbers {number} and {index}.")
    return made


def pair(number: int) -> EvaluatePairsRequest:
    """Two summaries of a source."""
    steps = [step["text"] for step in _sample()["candidates"][0]["script"]["steps"]]
    made = EvaluatePairsRequest(id=str(number), source=f"Recipe {number}. {' '.join(steps)}")
    made.first.text, made.first.model = f"In short: {' '.join(steps[:3])}", "model-0"
    made.second.text, made.second.model = f"In short: {' '.join(steps[-3:])}", "model-1"
    return made


def decision(number: int) -> EvaluateDecisionsRequest:
    """A decision between two options."""
    made = EvaluateDecisionsRequest(gold=decision_pb2.CHOICE_OPTION_1)
    made.decision.id = str(number)
    made.decision.goal = "find out the library's hours"
    made.decision.overall_goal = "borrow a book"
    made.decision.option_1, made.decision.option_2 = "look at the library's website", "call the library"
    made.decision.scenario = f"has a telephone with {number} contacts and a fast internet connection"
    return made


def dialogue(number: int) -> EvaluateDialoguesRequest:
    """A dialogue that a model continues with one reply, which is rated."""
    made = EvaluateDialoguesRequest(models=["m"])
    made.script.id = str(number)
    made.script.task.id = made.script.task.name = "Linux terminal"
    made.script.task.description = "Act as a Linux terminal. I type commands. My first command is pwd."
    said = ("pwd", "/home/me", "ls", "notes.txt", f"head -n {number} notes.txt")
    for index, text in enumerate(said):
        speaker = dialogue_pb2.SPEAKER_SIMULATOR if index % 2 else dialogue_pb2.SPEAKER_USER
        made.script.utterances.add(speaker=speaker, text=text)
    made.script.subset = dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY
    made.script.turn = 3
    return made


def graph(number: int) -> EvaluateGraphsRequest:
    """A script whose events a model orders."""
    made = EvaluateGraphsRequest(models=["m"])
    made.reference.id, made.reference.scenario = str(number), f"cook meal {number}"
    for index, text in enumerate(EVENTS):
        made.reference.events.add(id=str(index), text=text)
        if index:
            made.reference.edges.add(source_id=str(index - 1), target_id=str(index))
    return made


def _scripts_kind(candidates: int) -> Kind:
    options = ScriptsRunOptions(
        mechanism=scripts_pb2.MECHANISM_SINGLE_JUDGE,
        gold_answer_source=scripts_pb2.GOLD_ANSWER_SOURCE_NONE,
    )
    return Kind(
        services={"script-judge": "script-judge"},
        calls=candidates,
        parallel_calls=candidates,
        row=lambda number: scripts(number, candidates),
        options=RunSpec(scripts=options),
    )


KINDS: Mapping[str, Kind] = {
    "scripts_8": _scripts_kind(8),
    "scripts_1": _scripts_kind(1),
    "pairs": Kind(
        services={"pair-judge": "pair-judge"},
        calls=2,
        parallel_calls=2,
        row=pair,
        # The fixed roles of the set alone: generated ones are two calls more.
        options=RunSpec(
            pairs=PairsRunOptions(
                roles=RolePlan(coarse_count=0, fine_count=0),
                order=pair_judge_service_pb2.PRESENTATION_ORDER_BOTH,
            )
        ),
        answer=json.dumps(
            {f"role_{number}": {"reason": "Both say it.", "vote": "tie"} for number in (1, 2, 3)}
        ),
    ),
    "decisions": Kind(
        services={"author": "generation"},
        calls=1,
        parallel_calls=1,
        row=decision,
        options=RunSpec(
            decisions=DecisionsRunOptions(option_order=decisions_pb2.OPTION_ORDER_AS_GIVEN), models=["m"]
        ),
        answer="Option 1",
    ),
    "dialogues": Kind(
        services={"author": "generation", "rating-judge": "rating-judge"},
        calls=2,
        parallel_calls=1,  # the rating follows the reply
        row=dialogue,
        options=RunSpec(dialogues=DialoguesRunOptions()),
    ),
    "graphs": Kind(
        services={"author": "generation", "edges": "generation", "graph": "graph"},
        calls=1,
        parallel_calls=1,
        row=graph,
        options=RunSpec(graphs=GraphsRunOptions()),
    ),
}
"""Every kind by its name."""


@cache
def _sample() -> dict[str, Any]:
    with SAMPLES.open(encoding="utf-8") as file:
        row: dict[str, Any] = json.loads(file.readline())
    return row
