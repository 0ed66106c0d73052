"""Figures that AlignmentService computes for summaries, and comparisons of models by them."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from dramaturg.api.alignment.v1 import alignment_service_pb2
from dramaturg.api.alignment.v1.ranking_pb2 import RankedItem, RankSystemsRequest, RankSystemsResponse
from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry, RunResult
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.roles.v1 import role_service_pb2
from dramaturg.service.errors import ServiceError, from_rpc_error
from gateway.processes.process import Ask

if TYPE_CHECKING:  # its module takes long to load, also in processes that compute summaries
    from gateway.judges.registry import Registry


_ALIGNMENT = alignment_service_pb2.DESCRIPTOR.services_by_name["AlignmentService"]
_GRAPH = graph_service_pb2.DESCRIPTOR.services_by_name["GraphService"]
_ROLES = role_service_pb2.DESCRIPTOR.services_by_name["RoleService"]
_RESPONSE, _PROBLEM = b"R", b"P"


class Statistics:
    """The services that compute statistics, and the problems met there. Its methods block.

    Args:
        ask: Asks the gateway, which calls the services (``call_service``).
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.problems: list[str] = []

    def alignment(self, method: str, request: Any) -> Any:
        """The response of AlignmentService; None after a failure, which is noted as a problem."""
        return self._call("alignment", _ALIGNMENT, method, request)

    def required_alignment(self, method: str, request: Any) -> Any:
        """The response of AlignmentService.

        Raises:
            ServiceError: FAILED_PRECONDITION: there is none, for the first problem met.
        """
        response = self.alignment(method, request)
        if response is None:
            reason = error_reason_pb2.ERROR_REASON_ROLE_UNBOUND
            raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, reason, self.problems[0])
        return response

    def graph(self, method: str, request: Any) -> Any:
        """The response of GraphService; None after a failure, which is noted as a problem."""
        return self._call("graph", _GRAPH, method, request)

    def roles(self, method: str, request: Any) -> Any:
        """The response of RoleService; None after a failure, which is noted as a problem."""
        return self._call("roles", _ROLES, method, request)

    def _call(self, role: str, service: ServiceDescriptor, method: str, request: Any) -> Any:
        path = f"/{service.full_name}/{method}"
        answer = self._ask(b"\0".join((role.encode(), path.encode(), request.SerializeToString())))
        if answer[:1] == _PROBLEM:
            self.note(answer[1:].decode())
            return None
        response = GetMessageClass(service.methods_by_name[method].output_type)
        return response.FromString(answer[1:])

    def note(self, problem: str) -> None:
        """Adds a problem to those of the summary."""
        if problem not in self.problems:
            self.problems.append(problem)


async def call_service(registry: Registry, question: bytes) -> bytes:
    """Answers the question of a ``Statistics``.

    Args:
        registry: The registered judges, with the services of the roles.
        question: The role, the method and the request.
    """
    role, path, request = question.split(b"\0", 2)
    name = role.decode()
    judge = registry.default(name)
    if judge is None:
        return _PROBLEM + f"the role {name!r} has no service: its figures are missing".encode()
    try:
        call: Any = judge.channel.unary_unary(path.decode())
        return _RESPONSE + bytes(await call(request))
    except grpc.aio.AioRpcError as error:
        return _PROBLEM + f"the service of the role {name!r} failed: {from_rpc_error(error).message}".encode()


MAX_MEANS = 1_000_000
"""The most means of samples of a comparison, as AlignmentService takes items."""
MAX_MODELS = 100
"""The most models of a comparison: every two are compared."""

_RESAMPLES = 1999
_METHOD = "mean"
_TEST = "sign flips of samples"


class SampleMeans:
    """The mean of the values of each sample, by model and measure. It keeps 16 bytes for each."""

    def __init__(self) -> None:
        self._samples: defaultdict[tuple[str, str], array[int]] = defaultdict(lambda: array("Q"))
        self._means: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))

    def add(self, sample: int, rows: Mapping[tuple[str, str], Sequence[RunResult]]) -> None:
        """Adds the judgements of a sample.

        Args:
            sample: The number of the sample.
            rows: Its judgements, by model and measure.
        """
        for key, some in rows.items():
            values = [row.value for row in some if row.HasField("value")]
            if values:
                self._samples[key].append(sample)
                self._means[key].append(sum(values) / len(values))

    def request(self, models: Sequence[str], measure: str, seed: int) -> RankSystemsRequest:
        """The request that compares every two models; the systems are their positions.

        Args:
            models: The models by rank. Differences are to the first.
            measure: The measure that ranks.
            seed: The seed of sign flips.

        Raises:
            ValueError: There are too many samples or models; the message names the limits.
        """
        means = sum(len(self._samples[model, measure]) for model in models)
        if means > MAX_MEANS or len(models) > MAX_MODELS:
            raise ValueError(
                f"models are compared for at most {MAX_MEANS:,} means of samples and {MAX_MODELS} models: "
                f"these are {means:,} means of {len(models)} models"
            )
        return RankSystemsRequest(
            items=[
                RankedItem(id=str(sample), system=_system(position), scores={_METHOD: mean})
                for position, model in enumerate(models)
                for sample, mean in zip(
                    self._samples[model, measure], self._means[model, measure], strict=True
                )
            ],
            baseline=_system(0),
            resample_count=_RESAMPLES,
            seed=seed,
        )


def ranked_models(leaderboard: Sequence[LeaderboardEntry]) -> Sequence[str]:
    """The ranked models, by rank."""
    return [entry.model for entry in leaderboard if entry.rank]


def add_comparisons(summary: Summary, response: RankSystemsResponse, models: Sequence[str]) -> None:
    """Adds the differences of models to the first of them, and the simultaneous ranks of the leaderboard.

    Args:
        summary: The summary.
        response: The response to ``SampleMeans.request``.
        models: The models of the request.
    """
    by_position = {int(one.system): one for one in response.groups[0].methods[0].systems}
    entries = {entry.model: entry for entry in summary.leaderboard}
    for position, model in enumerate(models):
        if (found := by_position.get(position)) is None:
            continue
        if found.HasField("rank_lower"):
            entry = entries[model]
            entry.rank_lower, entry.rank_upper = int(found.rank_lower), int(found.rank_upper)
        if not found.HasField("difference"):
            continue
        difference = summary.model_differences.add(
            model=model, first_model=models[0], difference=found.difference, test=_TEST
        )
        if found.HasField("p_value"):
            difference.p_value, difference.adjusted_p_value = found.p_value, found.adjusted_p_value


def _system(position: int) -> str:
    """The name of a model's system: names of models may be empty or long."""
    return str(position)
