"""The material of the labelled set: scripts with planted faults, and dialogues."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_SIMULATOR, SPEAKER_USER, SimulationTask, Utterance
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.judge import roles
from dramaturg.judge.client import judge_request
from dramaturg.meta_evaluation.case import Case
from dramaturg.meta_evaluation.rules import Material, perturb


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
