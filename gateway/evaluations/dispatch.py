"""Plans the evaluation of any request."""

from __future__ import annotations

from google.protobuf.message import Message

from gateway.evaluations.calls import Timeouts
from gateway.evaluations.kind import EvaluationContext
from gateway.evaluations.kinds import BY_REQUEST
from gateway.evaluations.streams import Evaluation
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Registry
from gateway.processes.pool import ProcessPool


class Evaluations:
    """Plans the evaluation of any request.

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

    def plan(self, request: Message) -> Evaluation:
        """Plans the evaluation of a request that is within the contract's limits.

        Args:
            request: The request of a method of EvaluationService.

        Raises:
            ServiceError: The request is invalid; the codes are those of the method's contract.
        """
        return BY_REQUEST[type(request)].plan(request, self.context)
