"""A request of the labelled set with its labels, and its material: scripts with planted faults, dialogues."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_SIMULATOR, SPEAKER_USER, SimulationTask, Utterance
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.generation.v1.authoring_decisions_pb2 import ChooseOptionRequest
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import NextUserTurnRequest
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest
from dramaturg.api.generation.v1.edge_service_pb2 import PredictEdgesRequest
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnRequest
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest
from dramaturg.api.roles.v1.role_service_pb2 import GenerateRolesRequest
from dramaturg.judge import roles
from dramaturg.judge.client import judge_request
from dramaturg.meta_evaluation.rules import Material, perturb

ENGLISH = "en"
CANDIDATE = "candidate"
"""The id of the judged candidate of a case whose request has several."""
JUDGES = (
    roles.CRITIC.name,
    roles.EXECUTE.name,
    roles.COMMONSENSE.name,
    roles.SCRIPT_JUDGE.name,
    roles.PAIR_JUDGE.name,
    roles.RATING_JUDGE.name,
    roles.CHALLENGE_JUDGE.name,
    roles.RUBRIC_JUDGE.name,
    roles.SYNTHESIZE.name,
    roles.ROLES_FINDER.name,
    roles.EDGES.name,
    roles.AUTHOR.name,
)
"""The roles of the judges and authors that the set has cases for."""
PREFERENCE, RATING, TURN, CHOICE, CHOICE_SWAPPED = "preference", "rating", "turn", "choice", "choice-swapped"
"""The items that judges of pairs, ratings, turns and decisions report. Judges of texts report criteria."""

WrittenRequest = (
    SynthesizeRequest
    | GenerateRolesRequest
    | PredictEdgesRequest
    | WriteScriptRequest
    | WriteScriptGraphRequest
    | NextUserTurnRequest
)
"""Requests whose answer is a script, roles, a graph or a message."""
Request = (
    JudgeRequest
    | ComparePairRequest
    | RateReplyRequest
    | FindChallengingTurnRequest
    | ChooseOptionRequest
    | WrittenRequest
)


@dataclass(frozen=True)
class Case:
    """One request to one judge or author."""

    judge: str
    """The role of the judge."""
    id: str
    """A name that is unique for the judge."""
    request: Request
    """The request, without options."""
    faults: Mapping[str, bool] = field(default_factory=dict)
    """Whether the answer should have an item: report a fault, or contain a part. Items without a label are
    missing."""
    value: int = 0
    """The challenging turn, or the right choice (``common.v1.Choice``)."""
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The words of items of a text, in lower case: one of them is enough."""
    language: str = ENGLISH
    """The language of the material (ISO 639-1)."""
    injected: bool = False
    """Whether the material has an instruction to the judge or author."""
    rubric: str = ""
    """The rubric whose criteria are judged. Empty: that of the labelled set, or none."""


@dataclass(frozen=True)
class PlantedScript:
    """A flawless script of the set, and the faults that can be planted in it."""

    id: str
    language: str
    task: Task
    steps: Sequence[str]
    others: Sequence[Sequence[str]]
    """The steps of the scripts for other goals in the same language."""
    implausible: Sequence[str]
    """The steps, one of which is against common sense."""
    seed: int

    @classmethod
    def of(cls, data: Mapping[str, Any], bench_set: Mapping[str, Any]) -> PlantedScript:
        """Reads a script of the set."""
        implausible = list(data["steps"])
        implausible[data["implausible"]["step"] - 1] = data["implausible"]["text"]
        return cls(
            data["id"],
            data["language"],
            Task(goal=data["goal"], constraints=data["constraints"]),
            data["steps"],
            [
                one["steps"]
                for one in bench_set["scripts"]
                if one["language"] == data["language"] and one["id"] != data["id"]
            ],
            implausible,
            data["seed"],
        )

    def planted(self, rule: str) -> Sequence[str]:
        """The steps with the fault of a rule, always the same one."""
        material = Material(self.steps, list(self.task.constraints), self.others)
        draw = random.Random(f"{self.seed}/{rule}")  # noqa: S311 - a choice of steps, no secret
        return perturb(rule, material, draw).steps

    def case(
        self,
        role: roles.JudgeRole,
        name: str,
        steps: Sequence[str],
        faults: Mapping[str, bool],
        *,
        injected: bool = False,
    ) -> Case:
        """A request to judge some steps for this script's task."""
        candidate = Candidate(id="candidate", script=script_of(steps))
        # All criteria of the judge are asked for, as in an evaluation, also where one is labelled.
        request = judge_request(self.task, [candidate], reference=script_of(self.steps))
        return Case(
            role.name, f"{self.id}/{name}", request, faults, language=self.language, injected=injected
        )


def script_of(steps: Sequence[str]) -> Script:
    """A script of steps."""
    return Script(steps=[Step(text=step) for step in steps])


def simulation_task(data: Mapping[str, Any]) -> SimulationTask:
    """The task of a dialogue of the set."""
    return SimulationTask(name=data["task"], description=data["utterances"][0])


def utterances_of(data: Mapping[str, Any]) -> list[Utterance]:
    """The utterances of a dialogue of the set; the user begins."""
    return [
        Utterance(speaker=SPEAKER_SIMULATOR if index % 2 else SPEAKER_USER, text=text)
        for index, text in enumerate(data["utterances"])
    ]
