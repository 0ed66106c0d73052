"""What the services behind the judging contracts implement: plain objects, with no gRPC in them.

A method gets the request as it came, already checked against the contract's limits. It need not handle an
empty candidate, fill in its own name, or answer in order: ``dramaturg.judge.contracts`` does that for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dramaturg.api.agents.v1.commonsense_service_pb2 import CheckCommonsenseRequest
from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest
from dramaturg.api.agents.v1.execute_service_pb2 import ExecuteRequest
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1.script_judge_service_pb2 import JudgeScriptRequest

USES_POOL = "uses-pool"
"""The capability of a judge that wants the other candidates of the task."""
USES_REFERENCE = "uses-reference"
"""The capability of a judge that wants a reference script though its contract does not need one."""
CALLS_MODELS = "calls-models"
"""The capability of a judge that spends tokens."""


class Judge(Protocol):
    """Who judges: what ``IdentityService`` answers."""

    @property
    def name(self) -> str:
        """The implementation's name, in lower-case kebab case, such as "llm-critic"."""

    @property
    def version(self) -> str:
        """Its version (semantic versioning)."""

    @property
    def description(self) -> str:
        """What it is, in a sentence."""

    @property
    def criteria(self) -> Sequence[str]:
        """The criteria that it judges, in the order in which it answers."""

    @property
    def capabilities(self) -> Sequence[str]:
        """What it can do or wants: some of the three constants above."""


class ScriptRequest(Protocol):
    """What every request about one candidate has."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def candidate(self) -> Candidate:
        """The script to judge."""

    @property
    def reference(self) -> Script:
        """The script to compare with; without steps where there is none."""

    @property
    def pool(self) -> Sequence[Candidate]:
        """The other candidates of the task."""

    @property
    def options(self) -> JudgeOptions:
        """How to work."""


class Critic(Judge, Protocol):
    """Plays the role "critic" (``agents.v1.CriticService``)."""

    async def critique(self, request: CritiqueRequest) -> Assessment:
        """Judges missing, redundant and duplicate steps."""


class Executor(Judge, Protocol):
    """Plays the role "execute" (``agents.v1.ExecuteService``)."""

    async def execute(self, request: ExecuteRequest) -> Assessment:
        """Judges constraints, goal and order."""


class CommonsenseChecker(Judge, Protocol):
    """Plays the role "commonsense" (``agents.v1.CommonsenseService``)."""

    async def check(self, request: CheckCommonsenseRequest) -> Assessment:
        """Judges whether the steps can be carried out."""


class ScriptJudge(Judge, Protocol):
    """Plays the role "script-judge" (``judging.v1.ScriptJudgeService``)."""

    async def judge(self, request: JudgeScriptRequest, criteria: Sequence[str]) -> Assessment:
        """Judges the criteria given, which are some of its own."""


class Synthesizer(Judge, Protocol):
    """Plays the role "synthesize" (``agents.v1.SynthesizeService``). It judges nothing: no criteria."""

    async def synthesize(self, request: SynthesizeRequest) -> SynthesizeResponse:
        """Writes a reference script."""
