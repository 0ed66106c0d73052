"""The cases of the labelled set: one request to one judge with what the judge should report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnRequest
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest, DialogueSubject
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest
from dramaturg.judge import criteria, roles
from dramaturg.judge.role_sets import role_set
from dramaturg.meta_evaluation.case import ENGLISH, JUDGES, PREFERENCE, RATING, TURN, Case
from dramaturg.meta_evaluation.material import PlantedScript, simulation_task, utterances_of
from dramaturg.meta_evaluation.rules import RULES
from dramaturg.meta_evaluation.writing import writing_cases

SET_FILE = Path(__file__).parent / "bench_set.json"
"""The shipped set."""
HELD_OUT_FILE = SET_FILE.with_name("held_out_set.json")
"""A set of the same kinds and size with other material. No prompt is changed to do better on it."""

_ANY_LANGUAGE = ("delete", "repeat", "stop", "swap")
"""The rules whose faults do not contain English words of their own."""
_INJECTED_FAULT = {roles.CRITIC.name: "repeat", roles.EXECUTE.name: "stop", roles.SCRIPT_JUDGE.name: "stop"}
"""The rule of the fault that a script with an instruction to the judge has; else the implausible step."""


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
        made = (
            *self._script_cases(),
            *self._pair_cases(),
            *self._dialogue_cases(),
            *self._turn_cases(),
            *self._rubric_cases(),
            *writing_cases(self._data),
        )
        return [case for case in made if case.judge in judges]

    def _script_cases(self) -> Iterator[Case]:
        for role in (roles.CRITIC, roles.EXECUTE, roles.COMMONSENSE, roles.SCRIPT_JUDGE):
            for data in self._data["scripts"]:
                script = PlantedScript.of(data, self._data)
                yield from _with_references(role, _script_cases(role, script))
            yield from _with_references(role, self._injected_scripts(role))

    def _injected_scripts(self, role: roles.JudgeRole) -> Iterator[Case]:
        script = PlantedScript.of(self._data["scripts"][0], self._data)
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
                yield reply_pair(data, by_roles=by_roles)

    def _dialogue_cases(self) -> Iterator[Case]:
        injection = self._data["vote_injection"]
        for number, data in enumerate(self._data["dialogues"]):
            yield rating_case(data, "better", data["better"], fault=False)
            yield rating_case(data, "worse", data["worse"], fault=True)
            if number == 0:
                yield rating_case(data, "injection", data["worse"] + injection, fault=True, injected=True)

    def _turn_cases(self) -> Iterator[Case]:
        for data in self._data["turns"]:
            yield Case(
                roles.CHALLENGE_JUDGE.name,
                data["id"],
                FindChallengingTurnRequest(task=simulation_task(data), utterances=utterances_of(data)),
                {TURN: data["turn"] > 0},
                value=data["turn"],
                language=data["language"],
            )

    def _rubric_cases(self) -> Iterator[Case]:
        rubric = [ParseDict(one, Criterion()) for one in self._data["rubric"]]
        for data in self._data["rubric_texts"]:
            candidate = JudgeCandidate(id="candidate", text=data["text"])
            yield Case(
                roles.RUBRIC_JUDGE.name,
                data["id"],
                JudgeRequest(task=Task(goal=data["goal"]), candidates=[candidate], criteria=rubric),
                data["faults"],
                language=data["language"],
                injected=data.get("injected", False),
            )


def _script_cases(role: roles.JudgeRole, script: PlantedScript) -> Iterator[Case]:
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


def _appended(steps: Sequence[str], text: str) -> Sequence[str]:
    return [*steps[:-1], steps[-1] + text]


def _pair(data: Mapping[str, Any], name: str, worse: str, by_roles: bool) -> Case:
    request = ComparePairRequest(source=data["source"], first=data["better"], second=worse)
    return _comparison(request, data, name, "summarisation" if by_roles else "")


def reply_pair(data: Mapping[str, Any], *, by_roles: bool) -> Case:
    """The case of the two replies of a dialogue, for one judge or for the roles of dialogues."""
    subject = DialogueSubject(task=simulation_task(data), utterances=utterances_of(data))
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


def rating_case(
    data: Mapping[str, Any], name: str, response: str, *, fault: bool, injected: bool = False
) -> Case:
    """The case of one reply of a dialogue."""
    request = RateReplyRequest(task=simulation_task(data), utterances=utterances_of(data), response=response)
    return Case(
        roles.RATING_JUDGE.name,
        f"{data['id']}/{name}",
        request,
        {RATING: fault},
        language=data["language"],
        injected=injected,
    )
