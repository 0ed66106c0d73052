"""What implementations of the judging contracts provide: plain objects, without gRPC.

``dramaturg.judge.contracts`` serves them. It checks requests against the contract's limits, answers empty
candidates, fills in criteria without a verdict, and signs the provenance.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge.batches import JudgeItem
from dramaturg.service.errors import ServiceError

USES_POOL = "uses-pool"
"""The capability of a judge that compares a candidate with the other candidates of the task."""
USES_REFERENCE = "uses-reference"
"""The capability of a judge that compares with a reference though its role does not."""
CALLS_MODELS = "calls-models"
"""The capability of a judge that spends tokens."""
ANY_CRITERION = "any-criterion"
"""The capability of a judge that judges criteria which its identity does not name, by their definitions."""


class Implementation(Protocol):
    """Who answers: the fields of ``identity.v1.Identity``."""

    @property
    def name(self) -> str:
        """The implementation's name, in lower-case kebab case, such as "llm-critic"."""

    @property
    def version(self) -> str:
        """Its version (semantic versioning)."""

    @property
    def description(self) -> str:
        """What it does, in a sentence."""

    @property
    def criteria(self) -> Sequence[str]:
        """The criteria that it judges, in the order of its verdicts. Empty for what is no judge."""

    @property
    def capabilities(self) -> Sequence[str]:
        """Some of the four constants above."""


class Judge(Implementation, Protocol):
    """A judge of texts that judges one candidate at a time (``judging.v1.JudgeService``)."""

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges a candidate.

        Args:
            item: The candidate, with the task, the criteria to judge and what it is compared with. It is not
                empty.

        Returns:
            Verdicts on the criteria of ``item.criteria``, in any order. A criterion without a verdict
            abstains as not supported; other criteria of the judge are left out. Name, version and contract
            of the provenance need not be set.

        Raises:
            Exception: The candidate's result is this error; others are not affected. A ``ServiceError``
                reaches the caller as it is, anything else as INTERNAL.
        """


@runtime_checkable
class BatchJudge(Implementation, Protocol):
    """A judge of texts that judges all candidates of a request together (``judging.v1.JudgeService``)."""

    def judge_batch(
        self, items: Sequence[JudgeItem]
    ) -> AsyncGenerator[tuple[JudgeItem, Assessment | ServiceError]]:
        """Judges the candidates of a request.

        Args:
            items: The candidates, none empty, at least one; all have the same ``batch``.

        Yields:
            Each candidate with its assessment (see ``Judge.judge``) or its error, as soon as it is known, in
            any order. One that is left out has the error INTERNAL.
        """


class Synthesizer(Implementation, Protocol):
    """Writes reference scripts (``agents.v1.SynthesizeService``). It judges nothing: no criteria."""

    async def synthesize(self, request: SynthesizeRequest) -> SynthesizeResponse:
        """Writes a reference script."""
