"""Detection and false alarms on the labelled set of planted faults (``dramaturg.meta_evaluation``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest, Identity
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.conformance.processes import reached
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.judge.roles import RUBRIC_JUDGE, SCRIPT_JUDGE, JudgeRole, Role
from dramaturg.meta_evaluation.answers import CaseAnswer, Connections, Judgement, ask_all
from dramaturg.meta_evaluation.case import JUDGES, Case
from dramaturg.meta_evaluation.cases import BenchSet
from dramaturg.meta_evaluation.rates import Share, share
from dramaturg.service.channel import open_channel

CONCURRENCY = 8
"""The requests at once."""


@dataclass(frozen=True)
class Rates:
    """The rates of one item, or of all."""

    item: str
    """The criterion, or another item of ``dramaturg.meta_evaluation``. "all": all of them."""
    detected: Share
    """Reported faults out of all planted ones. An abstention reports none. Of a service that writes: parts of
    its answers out of those that they must have."""
    false_alarms: Share
    """Reported faults out of the flawless items. Of a service that writes: planted faults in its answers."""
    abstained: Share
    """Abstentions and failed calls out of all items."""


@dataclass(frozen=True)
class Quality:
    """What a service makes of the labelled set."""

    rates: Sequence[Rates]
    """The rates of each item, then of all."""
    set_sha256: str
    """The SHA-256 of the set, in lower-case hexadecimal."""
    case_count: int
    """The requests that were made."""
    errors: Sequence[str]
    """The failed calls: the case and the error."""

    @property
    def total(self) -> Rates:
        """The rates of all items."""
        return self.rates[-1]

    def to_json(self) -> dict[str, Any]:
        """The rates as a JSON object; shares are pairs of a number and its total."""
        return {
            "set_sha256": self.set_sha256,
            "cases": self.case_count,
            "errors": list(self.errors),
            "rates": [
                {
                    "item": one.item,
                    "detected": list(one.detected),
                    "false_alarms": list(one.false_alarms),
                    "abstained": list(one.abstained),
                }
                for one in self.rates
            ],
        }


async def measure(
    role: Role,
    target: str = "",
    *,
    command: str | Sequence[str] = "",
    model: str = "",
    timeout: float = 60.0,
) -> Quality | None:
    """Measures detection and false alarms of a server.

    Args:
        role: The role that it is measured for (see ``checked_role``). A judge of texts is measured on the
            criteria of the set that its identity names.
        target: Where the server listens.
        command: The command that starts the server, in place of its address (see ``processes.started``).
        model: The model that it is asked to use. Empty: its own default.
        timeout: The most seconds that one of its answers may take.

    Returns:
        The rates. None: the set has no items for the role or the criteria.

    Raises:
        grpc.aio.AioRpcError: The server does not tell its identity.
        ValueError: Not one of address and command is given.
        StartError: The command does not start a server.
    """
    bench = BenchSet()
    async with (
        reached(target, command, role.contract, timeout=timeout) as (address, _),
        open_channel(address) as channel,
    ):
        request = GetIdentityRequest(contract=role.contract)
        identity = (await IdentityServiceStub(channel).GetIdentity(request, timeout=timeout)).identity
        name, criteria = measured_role(role, identity)
        cases = [case for case in bench.cases([name]) if not case.injected and labelled_items(case, criteria)]
        if not cases:
            return None
        answers = await ask_all(
            cases,
            Connections(None, {name: channel}),
            JudgeOptions(model=model),
            concurrency=CONCURRENCY,
            timeout=timeout,
        )
    return _quality(answers, criteria, bench.sha256)


def measured_role(role: Role, identity: Identity) -> tuple[str, Sequence[str] | None]:
    """The role of the cases for a service, and the criteria of a judge. None: all items of the cases."""
    if not isinstance(role, JudgeRole):
        return role.name, None
    any_criterion = ANY_CRITERION in identity.capabilities
    if role.name in JUDGES and role.name != RUBRIC_JUDGE.name:
        return role.name, [one for one in role.criteria if any_criterion or one in identity.criteria]
    if any_criterion:
        return RUBRIC_JUDGE.name, None
    return SCRIPT_JUDGE.name, list(identity.criteria)


def labelled_items(case: Case, criteria: Sequence[str] | None) -> Sequence[str]:
    """The items of a case that are measured. None: all."""
    return [item for item in case.faults if criteria is None or item in criteria]


def _quality(answers: Sequence[CaseAnswer], criteria: Sequence[str] | None, sha256: str) -> Quality:
    judgements = [
        judgement
        for answer in answers
        for judgement in answer.judgements
        if criteria is None or judgement.item in criteria
    ]
    items: dict[str, list[Judgement]] = {}
    # Other items than criteria are those of single cases, or there is one alone.
    for one in judgements if criteria is not None else ():
        items.setdefault(one.item, []).append(one)
    errors = [f"{answer.case.id}: {answer.error}" for answer in answers if answer.error]
    return Quality([*starmap(_rates, items.items()), _rates("all", judgements)], sha256, len(answers), errors)


def _rates(item: str, judgements: Sequence[Judgement]) -> Rates:
    return Rates(
        item,
        detected=share(bool(one.reported) for one in judgements if one.fault),
        false_alarms=share(bool(one.reported) for one in judgements if not one.fault),
        abstained=share(one.reported is None for one in judgements),
    )
