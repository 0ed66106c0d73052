"""The roles of an evaluation, and how the contracts of the judges of scripts are called.

A new role is one more entry of ``ROLES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any

import grpc

from dramaturg.api.agents.v1 import (
    commonsense_service_pb2,
    commonsense_service_pb2_grpc,
    critic_service_pb2,
    critic_service_pb2_grpc,
    execute_service_pb2,
    execute_service_pb2_grpc,
    synthesize_service_pb2,
)
from dramaturg.api.alignment.v1 import alignment_service_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.embedding.v1 import embedding_service_pb2
from dramaturg.api.generation.v1 import authoring_service_pb2, edge_service_pb2
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.judging.v1 import (
    challenge_judge_service_pb2,
    pair_judge_service_pb2,
    rating_judge_service_pb2,
    script_judge_service_pb2,
    script_judge_service_pb2_grpc,
    text_scorer_service_pb2,
)
from dramaturg.api.roles.v1 import role_service_pb2
from dramaturg.judge import criteria


@dataclass(frozen=True)
class Question:
    """What a judge is asked about one candidate."""

    task: Task
    """The task."""
    candidate: Candidate
    """The script to judge."""
    reference: Script | None
    """The script to compare with, if there is one and the judge wants it."""
    pool: Sequence[Candidate]
    """The other candidates of the task. Empty for judges that do not want them."""
    options: JudgeOptions
    """The model and how it samples."""


@dataclass(frozen=True)
class Role:
    """A part in an evaluation, played by any service that implements its contract."""

    name: str
    """The name that requests and configurations use."""
    contract: str
    """The full name of the gRPC service."""
    players: tuple[str, ...]
    """The services that can play it where the whole platform runs in one process. May be none."""


@dataclass(frozen=True)
class JudgeRole(Role):
    """A role whose players give verdicts on one candidate."""

    criteria: tuple[str, ...]
    """The criteria that the contract promises, in the order of ABSEval's section 3.1."""
    compares: bool
    """Whether the contract itself compares with a reference, so that it is always sent where there is one."""
    method: Callable[[grpc.aio.Channel], grpc.aio.UnaryUnaryMultiCallable[Any, Any]]
    """The contract's one method, on a channel."""
    request: Callable[..., Any]
    """The method's request message."""

    async def ask(self, channel: grpc.aio.Channel, question: Question, timeout: float | None) -> Assessment:
        """Asks the judge behind a channel.

        Args:
            channel: Where the judge is reached.
            question: What it is asked.
            timeout: The most seconds to wait, or None.

        Returns:
            The assessment as it came; without verdicts where the answer is not of the contract's form.

        Raises:
            grpc.aio.AioRpcError: The judge failed.
        """
        response = await self.method(channel)(
            self.request(
                task=question.task,
                candidate=question.candidate,
                reference=question.reference,
                pool=question.pool,
                options=question.options,
            ),
            timeout=timeout,
        )
        # gRPC hands over None where the bytes do not parse as the response.
        return Assessment() if response is None else response.assessment


def _contract(module: ModuleType) -> str:
    """The full name of the one service that a generated module describes."""
    (service,) = module.DESCRIPTOR.services_by_name.values()
    return str(service.full_name)


SYNTHESIZE = Role("synthesize", _contract(synthesize_service_pb2), players=("synthesize",))
"""Writes the reference script."""
CRITIC = JudgeRole(
    name="critic",
    contract=_contract(critic_service_pb2),
    players=("critic",),
    criteria=(criteria.NO_MISSING_STEPS, criteria.NO_REDUNDANT_STEPS, criteria.NO_DUPLICATE_STEPS),
    compares=True,
    method=lambda channel: critic_service_pb2_grpc.CriticServiceStub(channel).Critique,
    request=critic_service_pb2.CritiqueRequest,
)
"""Compares a script with the reference."""
EXECUTE = JudgeRole(
    name="execute",
    contract=_contract(execute_service_pb2),
    players=("execute",),
    criteria=(criteria.SATISFIES_CONSTRAINTS, criteria.COMPLETES_GOAL, criteria.ORDER_CORRECT),
    compares=False,
    method=lambda channel: execute_service_pb2_grpc.ExecuteServiceStub(channel).Execute,
    request=execute_service_pb2.ExecuteRequest,
)
"""Walks through a script."""
COMMONSENSE = JudgeRole(
    name="commonsense",
    contract=_contract(commonsense_service_pb2),
    players=("commonsense",),
    criteria=(criteria.EXECUTABLE,),
    compares=False,
    method=lambda channel: commonsense_service_pb2_grpc.CommonsenseServiceStub(channel).CheckCommonsense,
    request=commonsense_service_pb2.CheckCommonsenseRequest,
)
"""Holds every step against common sense."""
SCRIPT_JUDGE = JudgeRole(
    name="script-judge",
    contract=_contract(script_judge_service_pb2),
    players=("script-judge",),
    criteria=criteria.ABSEVAL,
    compares=True,
    method=lambda channel: script_judge_service_pb2_grpc.ScriptJudgeServiceStub(channel).JudgeScript,
    request=script_judge_service_pb2.JudgeScriptRequest,
)
"""Judges all seven criteria alone."""

AUTHOR = Role("author", _contract(authoring_service_pb2), players=("generation",))
"""Writes, with the models under test, what is then judged."""
EDGES = Role("edges", _contract(edge_service_pb2), players=("generation", "edges"))
"""Predicts the order of events."""
ROLES_FINDER = Role("roles", _contract(role_service_pb2), players=("roles",))
"""Finds out who should judge a text."""
PAIR_JUDGE = Role("pair-judge", _contract(pair_judge_service_pb2), players=("pair-judge",))
"""Compares two texts."""
RATING_JUDGE = Role("rating-judge", _contract(rating_judge_service_pb2), players=("rating-judge",))
"""Rates a response."""
CHALLENGE_JUDGE = Role(
    "challenge-judge", _contract(challenge_judge_service_pb2), players=("challenge-judge",)
)
"""Finds where a dialogue becomes too hard."""
TEXT_SCORER = Role("text-scorer", _contract(text_scorer_service_pb2), players=())
"""Scores texts for an attribute such as toxicity. Nobody plays it unless somebody registers who does."""
GRAPH = Role("graph", _contract(graph_service_pb2), players=("graph",))
"""Measures script graphs."""
ALIGNMENT = Role("alignment", _contract(alignment_service_pb2), players=("alignment",))
"""Measures agreement, accuracy, correlation and overlap."""
EMBEDDING = Role("embedding", _contract(embedding_service_pb2), players=("embedding",))
"""Embeds texts."""

ROLES: Mapping[str, Role] = MappingProxyType(
    {
        role.name: role
        for role in (
            SYNTHESIZE,
            CRITIC,
            EXECUTE,
            COMMONSENSE,
            SCRIPT_JUDGE,
            AUTHOR,
            EDGES,
            ROLES_FINDER,
            PAIR_JUDGE,
            RATING_JUDGE,
            CHALLENGE_JUDGE,
            TEXT_SCORER,
            GRAPH,
            ALIGNMENT,
            EMBEDDING,
        )
    }
)
"""Every role by its name, in the order in which results list them."""
