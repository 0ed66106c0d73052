"""Begins the evaluation of any request."""

from __future__ import annotations

from google.protobuf.message import Message

from gateway.evaluations.kind import EvaluationContext
from gateway.evaluations.kinds import BY_REQUEST
from gateway.evaluations.scope import EvaluationScope, Timeouts
from gateway.evaluations.streams import Evaluation
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Registry
from gateway.processes.pool import ProcessPool


class Evaluations:
    """Begins the evaluation of any request.

    Args:
        registry: The registered judges.
        directory: The identities of the judges.
        timeouts: The timeouts of judges.
        processes: The processes in which figures are computed.
        parsers: The processes that parse long candidates.
    """

    def __init__(
        self,
        registry: Registry,
        directory: JudgeDirectory,
        timeouts: Timeouts,
        processes: ProcessPool,
        parsers: ProcessPool,
    ) -> None:
        self.registry = registry
        self.processes = processes
        self.context = EvaluationContext(registry, directory, timeouts, parsers)

    def begin(self, request: Message, scope: EvaluationScope) -> Evaluation:
        """Plans a request that is within the contract's limits, and prepares its evaluation.

        Args:
            request: The request of a method of EvaluationService.
            scope: What the calls of the evaluation share.

        Raises:
            ServiceError: The request is invalid; the codes are those of the method's contract.
        """
        return BY_REQUEST[type(request)].begin(request, self.context, scope)
