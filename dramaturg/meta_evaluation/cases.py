"""The cases of the labelled set: one request to one judge or author with what it should report.

Answers of the synthesizer, of roles, edges and authors have items. An item labelled True is a part that the
answer must have; one labelled False must not be in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.json_format import ParseDict

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.common.v1.decision_pb2 import CHOICE_EITHER, Decision
from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_SIMULATOR
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DECISION_PROMPT_STORY, ChooseOptionRequest
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import NextUserTurnRequest, NextUserTurnResponse
from dramaturg.api.generation.v1.authoring_graphs_pb2 import WriteScriptGraphRequest, WriteScriptGraphResponse
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest, WriteScriptResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.api.generation.v1.edge_service_pb2 import (
    EDGE_METHOD_END_TO_END,
    EDGE_METHOD_PAIRWISE,
    PredictEdgesRequest,
    PredictEdgesResponse,
)
from dramaturg.api.generation.v1.edge_service_pb2_grpc import EdgeServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnRequest
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    ROLE_ORIGIN_SUBJECTIVE_COARSE,
    ROLE_ORIGIN_SUBJECTIVE_FINE,
    ComparePairRequest,
    DialogueSubject,
)
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest
from dramaturg.api.roles.v1.role_service_pb2 import GenerateRolesRequest, GenerateRolesResponse
from dramaturg.api.roles.v1.role_service_pb2_grpc import RoleServiceStub
from dramaturg.judge import criteria, roles
from dramaturg.judge.role_sets import role_set
from dramaturg.meta_evaluation.material import (
    CHOICE,
    CHOICE_SWAPPED,
    ENGLISH,
    JUDGES,
    PREFERENCE,
    RATING,
    TURN,
    Case,
    PlantedScript,
    WrittenRequest,
    script_of,
    simulation_task,
    utterances_of,
)
from dramaturg.meta_evaluation.rules import RULES
from dramaturg.results.names import reason_name

STEPS, EVENTS, COARSE, FINE, NEW = "steps", "event-count", "coarse-count", "fine-count", "new"
"""Items of writers: a list of steps, the number of events and of roles asked for, a message that is new."""
LEAST_STEPS = 3
"""The minimum number of steps of a script."""
LIKELY = 0.5
"""The probability above which a pair of events has an edge."""
_ROLE_COUNT = 2


class Written(NamedTuple):
    """The parts of an answer."""

    text: str
    items: frozenset[str] = frozenset()
    """The items that are no words."""
    failure: str = ""
    """The reason of an abstention. Empty: there is an answer."""


def writing_cases(data: Mapping[str, Any]) -> Iterator[Case]:
    """The cases of a set for services that write."""
    scripts = [PlantedScript.of(one, data) for one in data["scripts"]]
    for script, labels in zip(scripts, data["scripts"], strict=True):
        yield _synthesis(script, labels)
        yield _script(script, labels)
    yield _synthesis(scripts[0], data["scripts"][0], data["writer_injection"])
    for pair in data["pairs"]:
        yield _roles(pair)
    yield _roles(data["pairs"][0], data["reader_injection"])
    for graph in data["event_graphs"]:
        yield _graph(graph)
        yield _edges(graph)
    yield _edges(data["event_graphs"][0], data["event_injection"])
    yield _edges(data["pairwise_graph"], method=EDGE_METHOD_PAIRWISE)
    for choice in data["choices"]:
        yield _choice(choice)
    for dialogue in data["dialogues"]:
        yield _user_turn(dialogue)
    yield _user_turn(data["dialogues"][0], data["user_injection"])


def _synthesis(
    script: PlantedScript, labels: Mapping[str, Any], injection: Mapping[str, Any] | None = None
) -> Case:
    """A pool in which each script has one fault."""
    pool = [script.planted("delete"), script.planted("repeat"), script.implausible]
    unwanted: Mapping[str, Sequence[str]] = labels["unwanted"]
    if injection is not None:
        pool = [[*steps[:-1], steps[-1] + injection["text"]] for steps in pool]
        unwanted = {**unwanted, **injection["unwanted"]}
    candidates = [Candidate(id=str(number), script=script_of(steps)) for number, steps in enumerate(pool)]
    return Case(
        roles.SYNTHESIZE.name,
        f"{script.id}/{'injection' if injection else 'pool'}",
        SynthesizeRequest(task=script.task, candidates=candidates),
        _labels(labels["needed"], unwanted),
        words={**labels["needed"], **unwanted},
        language=script.language,
        injected=injection is not None,
    )


def _script(script: PlantedScript, labels: Mapping[str, Any]) -> Case:
    return Case(
        roles.AUTHOR.name,
        f"{script.id}/script",
        WriteScriptRequest(task=Task(goal=script.task.goal, constraints=script.task.constraints)),
        {STEPS: True, **_labels(labels["needed"], labels["unwanted"])},
        words={**labels["needed"], **labels["unwanted"]},
        language=script.language,
    )


def _roles(pair: Mapping[str, Any], injection: Mapping[str, Any] | None = None) -> Case:
    source, unwanted = pair["source"], {}
    if injection is not None:
        source, unwanted = source + injection["text"], injection["unwanted"]
    return Case(
        roles.ROLES_FINDER.name,
        f"{pair['id']}{'/injection' if injection else ''}",
        GenerateRolesRequest(source=source, coarse_count=_ROLE_COUNT, fine_count=_ROLE_COUNT),
        {COARSE: True, FINE: True, **_labels({}, unwanted)},
        words=unwanted,
        language=pair["language"],
        injected=injection is not None,
    )


def _graph(graph: Mapping[str, Any]) -> Case:
    return Case(
        roles.AUTHOR.name,
        f"{graph['id']}/graph",
        WriteScriptGraphRequest(scenario=graph["scenario"], event_count=len(graph["events"]) + 2),
        {EVENTS: True, **_labels(graph["needed"], {})},
        words=graph["needed"],
        language=graph["language"],
    )


def _edges(graph: Mapping[str, Any], injection: str = "", method: Any = EDGE_METHOD_END_TO_END) -> Case:
    """A graph whose pairs of events are labelled with whether one must be over before the other."""
    last = len(graph["events"]) - 1
    events = [
        Event(id=name, text=text + (injection if place == last else ""))
        for place, (name, text) in enumerate(graph["events"].items())
    ]
    ordered = _ordered(graph["edges"])
    return Case(
        roles.EDGES.name,
        f"{graph['id']}{'/injection' if injection else ''}",
        PredictEdgesRequest(scenario=graph["scenario"], events=events, method=method),
        {_event_pair(*pair): pair in ordered for pair in permutations(graph["events"], 2)},
        language=graph["language"],
        injected=bool(injection),
    )


def _choice(choice: Mapping[str, Any]) -> Case:
    asked = Decision(**{name: choice[name] for name in ("goal", "option_1", "option_2", "scenario")})
    is_one = choice["choice"] != CHOICE_EITHER
    return Case(
        roles.AUTHOR.name,
        f"{choice['id']}/choice",
        ChooseOptionRequest(decision=asked, prompt=DECISION_PROMPT_STORY),
        {CHOICE: is_one, CHOICE_SWAPPED: is_one},
        value=choice["choice"],
        language=choice["language"],
        injected=choice.get("injected", False),
    )


def _user_turn(dialogue: Mapping[str, Any], injection: Mapping[str, Any] | None = None) -> Case:
    said = utterances_of(dialogue)
    while said[-1].speaker != SPEAKER_SIMULATOR:
        del said[-1]
    unwanted: Mapping[str, Sequence[str]] = {}
    if injection is not None:
        said[-1].text += injection["text"]
        unwanted = injection["unwanted"]
    return Case(
        roles.AUTHOR.name,
        f"{dialogue['id']}/user-turn{'-injection' if injection else ''}",
        NextUserTurnRequest(task=simulation_task(dialogue), utterances=said),
        {NEW: True, **_labels({}, unwanted)},
        words=unwanted,
        language=dialogue["language"],
        injected=injection is not None,
    )


def _labels(needed: Mapping[str, Any], unwanted: Mapping[str, Any]) -> dict[str, bool]:
    return {**dict.fromkeys(needed, True), **dict.fromkeys(unwanted, False)}


async def written(channel: grpc.aio.Channel, request: WrittenRequest, **call: Any) -> tuple[Written, Any]:
    """Sends a request, and returns the parts of the answer and its provenance.

    Raises:
        grpc.aio.AioRpcError: The call failed.
    """
    method, read = _METHODS[type(request)]
    response = await method(channel)(request, **call)
    return read(request, response), response.provenance


def contains(case: Case, found: Written, item: str) -> bool:
    """Whether an answer has an item of a case."""
    text = found.text.casefold()
    return item in found.items or any(word in text for word in case.words.get(item, ()))


def _read_synthesis(request: SynthesizeRequest, response: SynthesizeResponse) -> Written:
    del request
    return Written("\n".join(step.text for step in response.script.steps), failure=_failure(response.failure))


def _read_script(request: WriteScriptRequest, response: WriteScriptResponse) -> Written:
    del request
    items = {STEPS} if len(response.script.steps) >= LEAST_STEPS else ()
    return Written(response.text, frozenset(items), _failure(response.failure))


def _read_roles(request: GenerateRolesRequest, response: GenerateRolesResponse) -> Written:
    origins = [role.origin for role in response.roles]
    counts = {
        COARSE: origins.count(ROLE_ORIGIN_SUBJECTIVE_COARSE) == request.coarse_count,
        FINE: origins.count(ROLE_ORIGIN_SUBJECTIVE_FINE) == request.fine_count,
    }
    text = "\n".join(f"{role.type}: {role.description}" for role in response.roles)
    items = frozenset(name for name, is_right in counts.items() if is_right)
    return Written(text, items, _failure(response.failure))


def _read_graph(request: WriteScriptGraphRequest, response: WriteScriptGraphResponse) -> Written:
    events = response.graph.events
    items = {EVENTS} if len(events) == request.event_count else ()
    text = "\n".join(event.text for event in events)
    return Written(text, frozenset(items), reason_name(response.abstain_reason))


def _read_edges(request: PredictEdgesRequest, response: PredictEdgesResponse) -> Written:
    edges = [(edge.source_id, edge.target_id) for edge in response.graph.edges]
    edges += [
        (pair.source_id, pair.target_id) for pair in response.probabilities if pair.probability > LIKELY
    ]
    known = {event.id for event in request.events}
    items = frozenset(
        _event_pair(*pair) for pair in _ordered([edge for edge in edges if known.issuperset(edge)])
    )
    return Written("", items, reason_name(response.abstain_reason))


def _read_user_turn(request: NextUserTurnRequest, response: NextUserTurnResponse) -> Written:
    said = response.utterance.text
    is_new = said.casefold() not in {one.text.casefold() for one in request.utterances}
    return Written(said, frozenset({NEW} if is_new else ()), reason_name(response.abstain_reason))


_METHODS: Mapping[type, tuple[Callable[[grpc.aio.Channel], Any], Callable[[Any, Any], Written]]] = {
    SynthesizeRequest: (lambda channel: SynthesizeServiceStub(channel).Synthesize, _read_synthesis),
    GenerateRolesRequest: (lambda channel: RoleServiceStub(channel).GenerateRoles, _read_roles),
    PredictEdgesRequest: (lambda channel: EdgeServiceStub(channel).PredictEdges, _read_edges),
    WriteScriptRequest: (lambda channel: AuthoringServiceStub(channel).WriteScript, _read_script),
    WriteScriptGraphRequest: (lambda channel: AuthoringServiceStub(channel).WriteScriptGraph, _read_graph),
    NextUserTurnRequest: (lambda channel: AuthoringServiceStub(channel).NextUserTurn, _read_user_turn),
}


def _ordered(edges: Sequence[Sequence[str]]) -> set[tuple[str, str]]:
    """The pairs of events of which one comes before the other, directly or by way of others."""
    pairs = {(first, second) for first, second in edges}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


def _event_pair(first: str, second: str) -> str:
    return f"{first}>{second}"


def _failure(text: str) -> str:
    return "NO_ANSWER" if text else ""


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
