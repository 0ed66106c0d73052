"""One request of the labelled set with its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
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
    """The ready rubric whose criteria are judged. Empty: others."""
