"""The kinds of evaluation, found by their folders.

A kind is a package ``gateway.evaluations.<name>`` whose module ``kind`` has a ``KIND``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from gateway.evaluations.kind import EvaluationKind, RunKind
from gateway.evaluations.repeats import check_repeats
from gateway.evaluations.scope import EvaluationContext, EvaluationScope, Timeouts
from gateway.evaluations.streams import Evaluation
from gateway.evaluations.summary import KindSummary
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Registry
from gateway.processes.pool import ProcessPool

KINDS: Sequence[EvaluationKind] = [
    import_module(f"{__package__}.{found.name}.kind").KIND
    for found in iter_modules([str(Path(__file__).parent)])
    if found.ispkg
]
"""All kinds, by name."""

BY_REQUEST: Mapping[type[Message], EvaluationKind] = {kind.request_type: kind for kind in KINDS}
"""The kinds by the type of their request."""

RUN_KINDS: Mapping[str, RunKind] = {kind.name: kind for kind in KINDS if isinstance(kind, RunKind)}
"""The kinds of runs by the member of ``RunSpec.evaluation``."""

SUMMARIES: Mapping[str, KindSummary] = {kind.results.name: kind.summary for kind in RUN_KINDS.values()}
"""How samples are summarised, by the member of ``RunSample.result``."""

_BY_RESULT: Mapping[str, RunKind] = {kind.results.name: kind for kind in RUN_KINDS.values()}


def run_kind(spec: RunSpec) -> RunKind:
    """The kind of a run whose spec has one."""
    return RUN_KINDS[str(spec.WhichOneof("evaluation"))]


def result_kind(sample: Any) -> RunKind | None:
    """The kind of the result of a ``RunSample``; None if it has none."""
    return _BY_RESULT.get(sample.WhichOneof("result") or "")


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

    def begin(self, request: Any, scope: EvaluationScope) -> Evaluation[Any]:
        """Plans a request that is within the contract's limits, and prepares its evaluation.

        Args:
            request: The request of a method of EvaluationService.
            scope: What the calls of the evaluation share.

        Raises:
            ServiceError: The request is invalid; the codes are those of the method's contract.
        """
        kind = BY_REQUEST[type(request)]
        if isinstance(kind, RunKind):
            check_repeats(request.options, kind.roles)
        return kind.begin(request, self.context, scope)
