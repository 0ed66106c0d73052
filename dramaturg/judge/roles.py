"""The roles of evaluations and their contracts.

A role of judges of texts is configuration: a name, criteria, and whether its judges compare with a reference.
The roles of this module are built in; a gateway can configure others (``[[gateway.roles]]``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType

from dramaturg.api.agents.v1 import synthesize_service_pb2
from dramaturg.api.alignment.v1 import alignment_service_pb2
from dramaturg.api.embedding.v1 import embedding_service_pb2
from dramaturg.api.generation.v1 import authoring_service_pb2, edge_service_pb2
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.judging.v1 import (
    challenge_judge_service_pb2,
    judge_service_pb2,
    pair_judge_service_pb2,
    rating_judge_service_pb2,
    text_scorer_service_pb2,
)
from dramaturg.api.roles.v1 import role_service_pb2
from dramaturg.judge import criteria


def role_shortage(found: int, wanted: int) -> str:
    """States that roles are missing, as text. Empty: none is.

    Args:
        found: The number of usable roles.
        wanted: The number asked for.
    """
    return f"{found} of {wanted} roles were generated." if found < wanted else ""


def _contract(module: ModuleType) -> str:
    """Returns the full name of the single service of a generated module."""
    (service,) = module.DESCRIPTOR.services_by_name.values()
    return str(service.full_name)


JUDGE_CONTRACT = _contract(judge_service_pb2)
"""The contract of judges of texts."""


@dataclass(frozen=True)
class Role:
    """A role in an evaluation, for services that implement its contract."""

    name: str
    """The name in requests and configurations."""
    contract: str
    """The full name of the gRPC service."""
    services: tuple[str, ...] = ()
    """The services of the platform that can have the role."""


@dataclass(frozen=True, kw_only=True)
class JudgeRole(Role):
    """A role whose judges give verdicts on candidates."""

    contract: str = JUDGE_CONTRACT
    criteria: tuple[str, ...]
    """The criteria of its judges, in the order of the verdicts."""
    compares: bool = False
    """Whether its judges compare with a reference, where the request has one."""
    definitions: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Definitions of criteria, by id, for judges that judge any criterion."""


SYNTHESIZE = Role("synthesize", _contract(synthesize_service_pb2), ("synthesize",))
"""Writes the reference script."""
CRITIC = JudgeRole(
    name="critic",
    services=("critic",),
    criteria=(criteria.NO_MISSING_STEPS, criteria.NO_REDUNDANT_STEPS, criteria.NO_DUPLICATE_STEPS),
    compares=True,
)
"""Compares a script with the reference."""
EXECUTE = JudgeRole(
    name="execute",
    services=("execute",),
    criteria=(criteria.SATISFIES_CONSTRAINTS, criteria.COMPLETES_GOAL, criteria.ORDER_CORRECT),
)
"""Walks through a script."""
COMMONSENSE = JudgeRole(name="commonsense", services=("commonsense",), criteria=(criteria.EXECUTABLE,))
"""Judges whether each step can be carried out."""
SCRIPT_JUDGE = JudgeRole(
    name="script-judge", services=("script-judge",), criteria=criteria.ABSEVAL, compares=True
)
"""Judges all seven criteria in one call."""

AUTHOR = Role("author", _contract(authoring_service_pb2), services=("generation",))
"""Writes the judged material with the models under test."""
EDGES = Role("edges", _contract(edge_service_pb2), services=("generation", "edges"))
"""Predicts the order of events."""
ROLES_FINDER = Role("roles", _contract(role_service_pb2), services=("roles",))
"""Generates and clusters the reader roles that judge a text."""
PAIR_JUDGE = Role("pair-judge", _contract(pair_judge_service_pb2), services=("pair-judge",))
"""Compares two texts."""
RATING_JUDGE = Role("rating-judge", _contract(rating_judge_service_pb2), services=("rating-judge",))
"""Rates a response."""
RUBRIC_JUDGE = JudgeRole(name="rubric-judge", services=("rubric-judge",), criteria=(), compares=True)
"""Judges texts by the criteria of the request."""
RULE_JUDGE = JudgeRole(name="rule-judge", services=("rule-judge",), criteria=(), compares=True)
"""Judges texts by the rules of the criteria of the request."""
CHALLENGE_JUDGE = Role(
    "challenge-judge", _contract(challenge_judge_service_pb2), services=("challenge-judge",)
)
"""Finds the first too hard turn of a dialogue."""
TEXT_SCORER = Role("text-scorer", _contract(text_scorer_service_pb2), services=())
"""Scores texts for an attribute, for example toxicity. The platform has no service for it."""
GRAPH = Role("graph", _contract(graph_service_pb2), services=("graph",))
"""Measures script graphs."""
ALIGNMENT = Role("alignment", _contract(alignment_service_pb2), services=("alignment",))
"""Measures agreement, accuracy, correlation and overlap."""
EMBEDDING = Role("embedding", _contract(embedding_service_pb2), services=("embedding",))
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
            RUBRIC_JUDGE,
            RULE_JUDGE,
            CHALLENGE_JUDGE,
            TEXT_SCORER,
            GRAPH,
            ALIGNMENT,
            EMBEDDING,
        )
    }
)
"""The built-in roles by name, in the order of results."""


def role_table(configured: Iterable[JudgeRole] = ()) -> Mapping[str, Role]:
    """Returns all roles by name: the built-in ones, then the configured ones.

    Raises:
        ValueError: Two roles have the same name.
    """
    table = dict(ROLES)
    for role in configured:
        if role.name in table:
            built_in = " built-in" if role.name in ROLES else ""
            raise ValueError(f"{role.name!r} is the name of another{built_in} role")
        table[role.name] = role
    return MappingProxyType(table)
