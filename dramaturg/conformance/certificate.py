"""A certificate of a judge or a panel: what it is, and which properties are shown to hold within a tolerance.

Every property is an equivalence test on the two shipped sets of planted faults, and for judges of pairs and
replies on dialogues whose right reply is computed. The unit is a case, that is
one request; bounds are those of Clopper and Pearson (1934), which hold for every number of cases.

The sets do not say which model wrote a text, so self-preference (Panickssery, Bowman and Feng 2024) needs
judged pairs with the preferences of people: AlignmentService measures it, see ``self_preference``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dramaturg.api.alignment.v1.bias_pb2 import PreferenceExcess
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.evaluation.v1.judge_certificate_pb2 import JudgeCertificate, PropertyConclusion
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest, Identity
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest
from dramaturg.conformance.kit import StartError, reached
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.judge.roles import RUBRIC_JUDGE, SCRIPT_JUDGE, JudgeRole, Role
from dramaturg.meta_evaluation.answers import PANEL_ROLES, CaseAnswer, Connections, ask_all
from dramaturg.meta_evaluation.cases import HELD_OUT_FILE, BenchSet
from dramaturg.meta_evaluation.material import ENGLISH, JUDGES, Case
from dramaturg.meta_evaluation.variants import VARIANTS, computed_cases, sha256_of
from dramaturg.results.equivalence import (
    NOT_SHOWN,
    OUTSIDE,
    WITHIN,
    conclude,
    difference_bounds,
    share_bounds,
    shift_bounds,
)
from dramaturg.service.channel import open_channel

CONCURRENCY = 8
"""The requests at once."""
NOT_APPLICABLE, MAY_REPLACE = "not applicable", "may replace"
"""Further conclusions of a test."""
CONCLUSIONS: Mapping[str, PropertyConclusion.ValueType] = {
    one: PropertyConclusion.Value(f"PROPERTY_CONCLUSION_{one.upper().replace(' ', '_')}")
    for one in (WITHIN, OUTSIDE, NOT_SHOWN, NOT_APPLICABLE, MAY_REPLACE)
}
"""The conclusions as a gateway stores them."""

TOLERANCES: Mapping[str, float] = {
    "missed faults": 0.2,
    "false alarms": 0.2,
    "position": 0.1,
    "verbosity": 0.1,
    "authority": 0.1,
    "bandwagon": 0.1,
    "formatting": 0.1,
    "injection": 0.1,
    "other languages": 0.2,
    "repeatability": 0.1,
    "self-preference": 0.1,
}
"""The tolerated size of each property's figure, in (0, 1)."""
_SHIFT = "cases that turn to a report, less those that turn from one, "
_FIGURES = {
    "missed faults": "cases with a planted fault that is not reported",
    "false alarms": "flawless cases in which a fault is reported",
    "position": f"{_SHIFT}behind another candidate",
    "verbosity": f"{_SHIFT}with an empty sentence in every step",
    "authority": f"{_SHIFT}with the claim that an expert approves of the text",
    "bandwagon": f"{_SHIFT}with the claim that most readers approve of the text",
    "formatting": f"{_SHIFT}in bold",
    "injection": f"faulty {_SHIFT}with an instruction to the judge",
    "other languages": "right cases in other languages, less right cases in English",
    "repeatability": "cases whose answer changes when it is asked for again",
}
_ORDERS = "votes that differ between the two orders of a pair"
_OWN_FAMILY = "choices of the text by the judge's model family, less those of people"
SELF_PREFERENCE = "self-preference"
"""The property that needs judged pairs."""
_NO_PAIRS = (
    "needs judged pairs that people judged too: dramaturg judges certify --pairs FILE --judge-family FAMILY"
)


@dataclass(frozen=True)
class Property:
    """The equivalence test of one property."""

    name: str
    """One of ``TOLERANCES``, or "replacement": the test whether the judge may take the place of people."""
    figure: str
    """What the value is a share or a difference of."""
    conclusion: str
    """``WITHIN``: both bounds are within the tolerance. ``OUTSIDE``: both are beyond it, on one side.
    ``NOT_SHOWN``: neither is shown with this number of cases. ``NOT_APPLICABLE``: it was not tested.
    Of "replacement" ``MAY_REPLACE``: the value is a half or more; else ``NOT_SHOWN``."""
    tolerance: float = 0.0
    """The tolerated size of the value; of "replacement" epsilon, by how much the judge may be worse."""
    value: float | None = None
    """The figure, in [-1, 1]. None: there are no cases."""
    lower: float | None = None
    """The lower bound, with a one-sided error of 5 %. None: no value, or "replacement"."""
    upper: float | None = None
    """The upper bound, likewise."""
    case_count: int = 0
    """The cases that the figure rests on; of a difference of two groups, those of the smaller one; of
    "replacement" the most items that one person shares with the judge and others."""


@dataclass(frozen=True)
class Certificate:
    """The properties of one version of a judge."""

    role: str
    name: str
    """The name that the judge states."""
    version: str
    """The version that the judge states."""
    model: str
    """The model that was requested. Empty: the judge's default."""
    models: Sequence[str]
    """The models that answered, as their providers name them."""
    prompts: Mapping[str, str]
    """The SHA-256 of each prompt by its name."""
    sets: Sequence[str]
    """The SHA-256 of each set of cases; of computed ones that of their requests."""
    measured_at: str
    """The time of the measurement, RFC 3339 in UTC."""
    request_count: int
    """The requests that were sent."""
    abstained: int
    """The cases, as they stand in the sets, of which the judge abstained from an item."""
    errors: Sequence[str]
    """The failed requests: the case and the error."""
    properties: Sequence[Property]

    def to_json(self) -> dict[str, Any]:
        """The certificate as a JSON object."""
        return asdict(self)

    def to_message(self) -> JudgeCertificate:
        """The certificate as a gateway stores it, with the number of errors in place of them."""
        message = JudgeCertificate(
            name=self.name,
            version=self.version,
            model=self.model,
            answered_models=self.models,
            prompts=self.prompts,
            case_sets=self.sets,
            request_count=self.request_count,
            failed_count=len(self.errors),
            abstained_count=self.abstained,
        )
        message.measure_time.FromJsonString(self.measured_at)
        for one in self.properties:
            fields = {**asdict(one), "conclusion": CONCLUSIONS[one.conclusion]}
            message.properties.add(**fields)
        return message

    def count(self, conclusion: str) -> int:
        """How many properties have a conclusion."""
        return sum(one.conclusion == conclusion for one in self.properties)


async def certify(
    role: Role,
    target: str = "",
    *,
    command: str | Sequence[str] = "",
    model: str = "",
    timeout: float = 60.0,
    tolerances: Mapping[str, float] | None = None,
    panel: Judge | None = None,
) -> Certificate:
    """Tests a judge of texts, pairs or replies, or a panel of judges of texts.

    Args:
        role: The role that it is tested for (see ``checked_role``).
        target: Where the server listens.
        command: The command that starts the server, in place of its address (see ``processes.started``).
        model: The model that it is asked to use. Empty: its own default.
        timeout: The most seconds that one of its answers may take.
        tolerances: Tolerances in place of those of ``TOLERANCES``.
        panel: The panel, as the gateway at the address lists it: it is asked by evaluations of its gateway.
            None: the server is a judge.

    Raises:
        grpc.aio.AioRpcError: The server does not tell its identity.
        ValueError: The sets have no cases for the judge, a panel of its role cannot be asked, a member of the
            panel does not state its identity, or not one of address and command is given.
        StartError: The command does not start a server.
    """
    tolerated = {**TOLERANCES, **(tolerances or {})}
    async with _connected(role, target, command, panel, timeout) as (connections, identity):
        sets = [BenchSet(), BenchSet(HELD_OUT_FILE)]
        name, cases = _cases(role, identity, sets)
        _check_panel(connections, name)
        answers: list[CaseAnswer] = []

        async def ask(wanted: Sequence[Case], repeat: int = 0) -> Sequence[CaseAnswer]:
            options = JudgeOptions(model=model, repeat_index=repeat)
            found = await ask_all(wanted, connections, options, concurrency=CONCURRENCY, timeout=timeout)
            answers.extend(found)
            return found

        plain = await ask(cases)
        changed: dict[str, tuple[Sequence[CaseAnswer], Sequence[CaseAnswer]]] = {}
        for prop, make in VARIANTS.items():
            pairs = make([case for case in cases if not case.injected])
            changed[prop] = (
                await ask([first for first, _ in pairs])
                if prop == "position"
                else _answers_of(pairs, cases, plain),
                await ask([second for _, second in pairs]),
            )
        again = await ask(cases, 1)
    properties = [*_labelled(plain, tolerated)]
    for prop, (before, after) in changed.items():
        if prop == "position" and any(one.orders for one in plain):
            orders = [agree for one in plain for agree in one.orders]
            properties.append(_share(prop, orders.count(False), len(orders), tolerated, _ORDERS))
        else:
            properties.append(_shift(prop, before, after, tolerated))
    moves = [move for move in map(_move, plain, again) if move is not None]
    properties.append(_share("repeatability", sum(map(any, moves)), len(moves), tolerated))
    properties.append(_languages(plain, tolerated))
    properties.append(Property(SELF_PREFERENCE, _NO_PAIRS, NOT_APPLICABLE, tolerated[SELF_PREFERENCE]))
    return Certificate(
        role=role.name,
        name=identity.name,
        version=identity.version,
        model=model,
        models=_models(answers),
        prompts=_prompts(answers),
        sets=[*(one.sha256 for one in sets), *([sha256_of(made)] if (made := computed_cases(name)) else ())],
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        request_count=len(answers),
        abstained=sum(any(item.reported is None for item in one.judgements) for one in plain),
        errors=[f"{one.case.id}: {one.error}" for one in answers if one.error],
        properties=properties,
    )


def self_preference(found: PreferenceExcess, tolerance: float = TOLERANCES[SELF_PREFERENCE]) -> Property:
    """The test of self-preference: how much oftener the judge chooses its own family's text than people do.

    Args:
        found: ``PairBiasGroup.own_family`` of all pairs, with a confidence level of 1 - 2 * 5 %.
        tolerance: The tolerated excess, in (0, 1).
    """
    excess = found.excess
    if not excess.HasField("value"):
        return Property(SELF_PREFERENCE, excess.undefined, NOT_APPLICABLE, tolerance)
    bounds = found.excess_lower_bound, found.excess_upper_bound
    return Property(
        SELF_PREFERENCE,
        _OWN_FAMILY,
        conclude(*bounds, tolerance),
        tolerance,
        excess.value,
        *bounds,
        case_count=excess.count,
    )


async def changes_since(
    earlier: Mapping[str, Any],
    role: Role,
    target: str = "",
    *,
    command: str | Sequence[str] = "",
    model: str = "",
    timeout: float = 60.0,
    panel: Judge | None = None,
) -> Sequence[str]:
    """What is different now from an earlier certificate, as text; empty: nothing.

    Compares the name and the version that the judge states, and the models and prompts of its answer to one
    case. A prompt that it uses for other cases alone is not compared.

    Args:
        earlier: The certificate as its JSON object (``Certificate.to_json``).
        role: The role that the certificate is for.
        target: Where the server listens.
        command: The command that starts the server, in place of its address (see ``processes.started``).
        model: The model that it is asked to use. Empty: its own default.
        timeout: The most seconds that its answer may take.
        panel: The panel (see ``certify``). None: the server is a judge.

    Raises:
        grpc.aio.AioRpcError: The server does not tell its identity.
        ValueError: It is the certificate of another role, or as of ``certify``.
        StartError: The command does not start a server, or the judge does not answer.
    """
    if earlier["role"] != role.name:
        raise ValueError(f"the certificate is of the role {earlier['role']!r}, not {role.name!r}")
    async with _connected(role, target, command, panel, timeout) as (connections, identity):
        name, cases = _cases(role, identity, [BenchSet()])
        _check_panel(connections, name)
        answers = await ask_all(
            cases[:1], connections, JudgeOptions(model=model), concurrency=1, timeout=timeout
        )
    if answers[0].error:
        raise StartError(f"the judge does not answer: {answers[0].error}")
    now = {"name": identity.name, "version": identity.version}
    changes = [f"{key} {earlier[key]}, now {value}" for key, value in now.items() if earlier[key] != value]
    before, models = set(earlier["models"]), set(_models(answers))
    if models - before or (before and not models):
        changes.append(
            f"models {', '.join(sorted(before)) or 'none'}, now {', '.join(sorted(models)) or 'none'}"
        )
    known = earlier["prompts"]
    changes += [f"prompt {key}" for key, digest in _prompts(answers).items() if known.get(key) != digest]
    return changes


@asynccontextmanager
async def _connected(
    role: Role, target: str, command: str | Sequence[str], panel: Judge | None, timeout: float
) -> AsyncIterator[tuple[Connections, Identity]]:
    """The connection to a judge, or to the gateway of a panel, and its identity."""
    if panel is not None and role.name not in PANEL_ROLES:
        members = ", ".join(dict.fromkeys(one.judge for one in panel.panel.members))
        raise ValueError(
            f"panels have certificates in the roles {', '.join(PANEL_ROLES)}: certify the members {members}"
        )
    if panel is not None and not panel.HasField("identity"):
        raise ValueError(f"a member does not state its identity: {panel.error or 'see dramaturg judges'}")
    async with (
        reached(target, command, role.contract, timeout=timeout) as (address, _),
        open_channel(address) as channel,
    ):
        if panel is not None:
            yield Connections(channel, panel=JudgeSelection(role=role.name, judge=panel.name)), panel.identity
            return
        asked = GetIdentityRequest(contract=role.contract)
        identity = (await IdentityServiceStub(channel).GetIdentity(asked, timeout=timeout)).identity
        yield Connections(channel), identity


def _check_panel(connections: Connections, name: str) -> None:
    """Refuses a panel whose members have the cases of another role than the panel."""
    if connections.panel is not None and connections.panel.role != name:
        raise ValueError(
            f"no member of the panel judges what the cases of {connections.panel.role!r} ask for"
        )


def _models(answers: Iterable[CaseAnswer]) -> Sequence[str]:
    return sorted({call.answered_model for one in answers for call in one.provenance.completions} - {""})


def _prompts(answers: Iterable[CaseAnswer]) -> Mapping[str, str]:
    return {prompt.name: prompt.sha256 for one in answers for prompt in one.provenance.prompts}


def _cases(role: Role, identity: Identity, sets: Sequence[BenchSet]) -> tuple[str, list[Case]]:
    """The role of the cases, and the cases with the labels of the criteria that are measured."""
    name, criteria = _measured(role, identity)
    found = []
    for number, some in enumerate([*(one.cases([name]) for one in sets), computed_cases(name)]):
        for case in some:
            labels = {
                item: fault for item, fault in case.faults.items() if criteria is None or item in criteria
            }
            if labels and isinstance(case.request, JudgeRequest | ComparePairRequest | RateReplyRequest):
                found.append(Case(**{**vars(case), "id": f"{number}/{case.id}", "faults": labels}))
    if not found:
        raise ValueError(f"there are no cases for the role {role.name!r} and the criteria of the server")
    return name, found


def _measured(role: Role, identity: Identity) -> tuple[str, Sequence[str] | None]:
    """The role of the cases for a judge, and its criteria. None: all items of the cases."""
    if not isinstance(role, JudgeRole):
        return role.name, None
    any_criterion = ANY_CRITERION in identity.capabilities
    if role.name in JUDGES and role.name != RUBRIC_JUDGE.name:
        return role.name, [one for one in role.criteria if any_criterion or one in identity.criteria]
    if any_criterion:
        return RUBRIC_JUDGE.name, None
    return SCRIPT_JUDGE.name, list(identity.criteria)


def _answers_of(
    pairs: Sequence[tuple[Case, Case]], cases: Sequence[Case], answers: Sequence[CaseAnswer]
) -> Sequence[CaseAnswer]:
    """The answers to the first case of each pair, which were received before."""
    by_case: dict[tuple[str, bytes], CaseAnswer] = {
        _key(case): answer for case, answer in zip(cases, answers, strict=True)
    }
    return [by_case[_key(first)] for first, _ in pairs]


def _key(case: Case) -> tuple[str, bytes]:
    return case.id, case.request.SerializeToString(deterministic=True)


def _labelled(answers: Iterable[CaseAnswer], tolerated: Mapping[str, float]) -> Sequence[Property]:
    missed, alarms = [], []
    for one in answers:
        if one.case.injected:
            continue
        faults = [item.reported for item in one.judgements if item.fault]
        flawless = [item.reported for item in one.judgements if not item.fault and item.reported is not None]
        if faults:
            missed.append(not all(faults))
        if flawless:
            alarms.append(any(flawless))
    return (
        _share("missed faults", sum(missed), len(missed), tolerated),
        _share("false alarms", sum(alarms), len(alarms), tolerated),
    )


def _languages(answers: Iterable[CaseAnswer], tolerated: Mapping[str, float]) -> Property:
    right: dict[bool, list[bool]] = defaultdict(list)
    for one in answers:
        if not one.case.injected and one.judgements:
            right[one.case.language == ENGLISH].append(all(item.right for item in one.judgements))
    others, english = right[False], right[True]
    if not others or not english:
        return _absent("other languages", tolerated)
    value = sum(others) / len(others) - sum(english) / len(english)
    bounds = difference_bounds((sum(others), len(others)), (sum(english), len(english)))
    return _property("other languages", value, bounds, min(len(others), len(english)), tolerated)


class _Move(NamedTuple):
    """How the answer to a case differs between its two forms."""

    up: bool
    """Whether an item turns to a report."""
    down: bool
    """Whether an item turns from one."""
    lost: bool
    """Whether an item is answered in one form alone."""


def _move(before: CaseAnswer, after: CaseAnswer) -> _Move | None:
    """The move of a case. None: no item is answered in either form."""
    reports = {item.item: item.reported for item in before.judgements}
    both = [(reports[item.item], item.reported) for item in after.judgements if item.item in reports]
    both = [(old, new) for old, new in both if old is not None or new is not None]
    if not both:
        return None
    return _Move(
        up=(False, True) in both,
        down=(True, False) in both,
        lost=any(old is None or new is None for old, new in both),
    )


def _shift(
    name: str, before: Sequence[CaseAnswer], after: Sequence[CaseAnswer], tolerated: Mapping[str, float]
) -> Property:
    moves = [move for move in map(_move, before, after) if move is not None]
    if not moves:
        return _absent(name, tolerated)
    total, up, down = len(moves), sum(one.up for one in moves), sum(one.down for one in moves)
    # A lost answer counts against the judge in either bound: no change hides behind an abstention.
    most_up, most_down = (sum(one.lost or one[side] for one in moves) for side in (0, 1))
    bounds = shift_bounds(up, most_down, total)[0], shift_bounds(most_up, down, total)[1]
    return _property(name, (up - down) / total, bounds, total, tolerated)


def _share(name: str, hits: int, total: int, tolerated: Mapping[str, float], figure: str = "") -> Property:
    if not total:
        return _absent(name, tolerated)
    return _property(name, hits / total, share_bounds(hits, total), total, tolerated, figure)


def _property(
    name: str,
    value: float,
    bounds: tuple[float, float],
    case_count: int,
    tolerated: Mapping[str, float],
    figure: str = "",
) -> Property:
    return Property(
        name,
        figure or _FIGURES[name],
        conclude(*bounds, tolerated[name]),
        tolerated[name],
        value,
        *bounds,
        case_count,
    )


def _absent(name: str, tolerated: Mapping[str, float]) -> Property:
    return Property(name, "the sets have no answered cases", NOT_APPLICABLE, tolerated[name])
