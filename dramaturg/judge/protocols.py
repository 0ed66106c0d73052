"""Protocols of implementations of the judging contracts: plain objects, without gRPC.

``dramaturg.judge.contracts`` serves them. It validates requests against the contract's limits, answers empty
candidates, completes missing verdicts, and signs the provenance.
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
"""The capability of a judge that compares with a reference although its role does not require it."""
CALLS_MODELS = "calls-models"
"""The capability of a judge that spends tokens."""
ANY_CRITERION = "any-criterion"
"""The capability of a judge that judges any criterion by its definition."""
CONTEXT = "context"
"""The capability of a judge that takes the documents that a candidate rests on, and the instructions of the
system that wrote it.
"""
CONVERSATION = "conversation"
"""The capability of a judge that takes conversations."""
TOOL_CALLS = "tool-calls"
"""The capability of a judge that takes calls and results of tools in conversations."""
IMAGES = "images"
"""The capability of a judge that takes images in conversations."""

MAX_ANSWER_BYTES = 256 * 1024
"""The most bytes of an answer about one candidate, a comparison or a rating. A gateway cuts larger ones."""
MAX_CALL_TOKENS = 10_000_000
"""The most tokens of one model call that count: several times the largest window of a model."""


class Implementation(Protocol):
    """The identity of an implementation: the fields of ``identity.v1.Identity``."""

    @property
    def name(self) -> str:
        """The implementation's name, in lower-case kebab case, for example "llm-critic"."""

    @property
    def version(self) -> str:
        """Its version (semantic versioning)."""

    @property
    def description(self) -> str:
        """A description in one sentence."""

    @property
    def criteria(self) -> Sequence[str]:
        """The judged criteria, in the order of the verdicts. Empty unless the implementation is a judge."""

    @property
    def capabilities(self) -> Sequence[str]:
        """A subset of the capabilities of this module."""


class Judge(Implementation, Protocol):
    """A judge of texts that judges one candidate at a time (``judging.v1.JudgeService``)."""

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges a candidate.

        Args:
            item: The candidate, never empty, with the task, the criteria to judge, the reference and the
                pool.

        Returns:
            Verdicts on the criteria of ``item.criteria``, in any order. A criterion without a verdict
            becomes an abstention (not supported); verdicts on other criteria of the judge are dropped. Name,
            version and contract of the provenance need not be set.

        Raises:
            Exception: The error becomes the candidate's result; others are not affected. A ``ServiceError``
                reaches the caller unchanged, any other exception as INTERNAL.
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
            Each candidate with its assessment (see ``Judge.judge``) or its error, in any order, as soon as it
            is known. Omitted candidates have the error INTERNAL.
        """


class Synthesizer(Implementation, Protocol):
    """Writes reference scripts (``agents.v1.SynthesizeService``). Its criteria are empty."""

    async def synthesize(self, request: SynthesizeRequest) -> SynthesizeResponse:
        """Writes a reference script."""
