"""The cases of the labelled set: one request to one judge with what the judge should report."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_SIMULATOR, SPEAKER_USER, SimulationTask, Utterance
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnRequest
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest, DialogueSubject
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest
from dramaturg.judge import criteria, roles
from dramaturg.judge.client import judge_request
from dramaturg.judge.role_sets import role_set
from dramaturg.perturbations.rules import RULES, Material, perturb

SET_FILE = Path(__file__).parent / "bench_set.json"
"""The shipped set."""
ENGLISH = "en"
JUDGES = (
    roles.CRITIC.name,
    roles.EXECUTE.name,
    roles.COMMONSENSE.name,
    roles.SCRIPT_JUDGE.name,
    roles.PAIR_JUDGE.name,
    roles.RATING_JUDGE.name,
    roles.CHALLENGE_JUDGE.name,
)
"""The roles of the judges that the set has cases for."""
PREFERENCE, RATING, TURN = "preference", "rating", "turn"
"""The items that judges of pairs, ratings and turns report. Judges of scripts report criteria."""

Request = JudgeRequest | ComparePairRequest | RateReplyRequest | FindChallengingTurnRequest

_ANY_LANGUAGE = ("delete", "repeat", "stop", "swap")
"""The rules whose faults do not contain English words of their own."""
_INJECTED_FAULT = {roles.CRITIC.name: "repeat", roles.EXECUTE.name: "stop", roles.SCRIPT_JUDGE.name: "stop"}
"""The rule of the fault that a script with an instruction to the judge has; else the implausible step."""


@dataclass(frozen=True)
class Case:
    """One request to one judge."""

    judge: str
    """The role of the judge."""
    id: str
    """A name that is unique for the judge."""
    request: Request
    """The request, without options."""
    faults: Mapping[str, bool] = field(default_factory=dict)
    """Whether the judge should report a fault, by item. Items that are not labelled are missing."""
    turn: int = 0
    """The challenging turn, for judges of turns."""
    language: str = ENGLISH
    """The language of the material (ISO 639-1)."""
    injected: bool = False
    """Whether the material has an instruction to the judge."""


class BenchSet:
    """The labelled set.

    Args:
        file: The file of the set.
    """

    def __init__(self, file: Path = SET_FILE) -> None:
        self._content = file.read_bytes()
        self._data: Mapping[str, Any] = json.loads(self._content)

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the set, in lower-case hexadecimal."""
        return hashlib.sha256(self._content).hexdigest()

    def cases(self, judges: Sequence[str] = JUDGES) -> list[Case]:
        """The cases of some judges, in a fixed order."""
        made = (*self._script_cases(), *self._pair_cases(), *self._dialogue_cases(), *self._turn_cases())
        return [case for case in made if case.judge in judges]

    def _script_cases(self) -> Iterator[Case]:
        for role in (roles.CRITIC, roles.EXECUTE, roles.COMMONSENSE, roles.SCRIPT_JUDGE):
            for data in self._data["scripts"]:
                script = _PlantedScript.of(data, self._data)
                yield from _with_references(role, _script_cases(role, script))
            yield from _with_references(role, self._injected_scripts(role))

    def _injected_scripts(self, role: roles.JudgeRole) -> Iterator[Case]:
        script = _PlantedScript.of(self._data["scripts"][0], self._data)
        rule = _INJECTED_FAULT.get(role.name)
        steps = script.planted(rule) if rule else script.implausible
        criterion = RULES[rule].category.criterion if rule else criteria.EXECUTABLE
        for name, text in self._data["injections"].items():
            fault = {criterion: True}
            yield script.case(role, f"injection-{name}", _appended(steps, text), fault, injected=True)
        # A step that addresses the judge may be redundant.
        passed = [one for one in role.criteria if one != criteria.NO_REDUNDANT_STEPS]
        accused = _appended(script.steps, self._data["accusation"])
        yield script.case(role, "accusation", accused, dict.fromkeys(passed, False), injected=True)

    def _pair_cases(self) -> Iterator[Case]:
        for by_roles in (False, True):
            for data in self._data["pairs"]:
                yield _pair(data, "", data["worse"], by_roles)
            first = self._data["pairs"][0]
            yield _pair(first, "same", first["better"], by_roles)
            injected = first["worse"] + self._data["vote_injection"]
            yield _pair(first, "injection", injected, by_roles)
            for data in self._data["dialogues"]:
                yield _reply_pair(data, by_roles)

    def _dialogue_cases(self) -> Iterator[Case]:
        injection = self._data["vote_injection"]
        for number, data in enumerate(self._data["dialogues"]):
            yield _rating(data, "better", data["better"], fault=False)
            yield _rating(data, "worse", data["worse"], fault=True)
            if number == 0:
                yield _rating(data, "injection", data["worse"] + injection, fault=True, injected=True)

    def _turn_cases(self) -> Iterator[Case]:
        for data in self._data["turns"]:
            yield Case(
                roles.CHALLENGE_JUDGE.name,
                data["id"],
                FindChallengingTurnRequest(task=_task(data), utterances=_utterances(data)),
                {TURN: data["turn"] > 0},
                turn=data["turn"],
                language=data["language"],
            )


@dataclass(frozen=True)
class _PlantedScript:
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
    def of(cls, data: Mapping[str, Any], bench_set: Mapping[str, Any]) -> _PlantedScript:
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
        candidate = Candidate(id="candidate", script=_script(steps))
        # All criteria of the judge are asked for, as in an evaluation, also where one is labelled.
        request = judge_request(self.task, [candidate], reference=_script(self.steps))
        return Case(
            role.name, f"{self.id}/{name}", request, faults, language=self.language, injected=injected
        )


def _script_cases(role: roles.JudgeRole, script: _PlantedScript) -> Iterator[Case]:
    yield script.case(role, "clean", script.steps, dict.fromkeys(role.criteria, False))
    for rule in RULES if script.language == ENGLISH else _ANY_LANGUAGE:
        criterion = RULES[rule].category.criterion
        if criterion in role.criteria:
            yield script.case(role, rule, script.planted(rule), {criterion: True})
    if criteria.EXECUTABLE in role.criteria:
        yield script.case(role, "implausible", script.implausible, {criteria.EXECUTABLE: True})


def _with_references(role: roles.JudgeRole, cases: Iterator[Case]) -> Iterator[Case]:
    """The cases of a role without a reference; for the critic, which compares, also with one."""
    for case in cases:
        assert isinstance(case.request, JudgeRequest)
        if role is roles.CRITIC:
            yield Case(**{**vars(case), "id": f"{case.id}+reference"})
        alone = JudgeRequest()
        alone.CopyFrom(case.request)
        alone.ClearField("reference")
        yield Case(**{**vars(case), "request": alone})


def _script(steps: Sequence[str]) -> Script:
    return Script(steps=[Step(text=step) for step in steps])


def _appended(steps: Sequence[str], text: str) -> Sequence[str]:
    return [*steps[:-1], steps[-1] + text]


def _pair(data: Mapping[str, Any], name: str, worse: str, by_roles: bool) -> Case:
    request = ComparePairRequest(source=data["source"], first=data["better"], second=worse)
    return _comparison(request, data, name, "summarisation" if by_roles else "")


def _reply_pair(data: Mapping[str, Any], by_roles: bool) -> Case:
    subject = DialogueSubject(task=_task(data), utterances=_utterances(data))
    request = ComparePairRequest(dialogue=subject, first=data["better"], second=data["worse"])
    return _comparison(request, data, "", "dialogue" if by_roles else "")


def _comparison(request: ComparePairRequest, data: Mapping[str, Any], name: str, role_names: str) -> Case:
    request.roles.extend(role_set(role_names) if role_names else ())
    return Case(
        roles.PAIR_JUDGE.name,
        "".join((data["id"], f"/{name}" if name else "", "+roles" if role_names else "")),
        request,
        {PREFERENCE: request.first != request.second},
        language=data["language"],
        injected=name == "injection",
    )


def _rating(
    data: Mapping[str, Any], name: str, response: str, *, fault: bool, injected: bool = False
) -> Case:
    request = RateReplyRequest(task=_task(data), utterances=_utterances(data), response=response)
    return Case(
        roles.RATING_JUDGE.name,
        f"{data['id']}/{name}",
        request,
        {RATING: fault},
        language=data["language"],
        injected=injected,
    )


def _task(data: Mapping[str, Any]) -> SimulationTask:
    return SimulationTask(name=data["task"], description=data["utterances"][0])


def _utterances(data: Mapping[str, Any]) -> list[Utterance]:
    return [
        Utterance(speaker=SPEAKER_SIMULATOR if index % 2 else SPEAKER_USER, text=text)
        for index, text in enumerate(data["utterances"])
    ]
