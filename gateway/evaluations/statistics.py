"""Statistics of summaries, which other services compute, and means as messages.

A summary is computed in another process, which has no channels: it asks the gateway to call the services.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from dramaturg.api.alignment.v1 import alignment_service_pb2
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.api.roles.v1 import role_service_pb2
from dramaturg.results.means import Mean
from dramaturg.service.errors import from_rpc_error
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


def estimate_of(
    mean: Mean, total: int, scale: tuple[float, float] = (0.0, 1.0), cluster: str = "sample"
) -> Estimate:
    """A mean as a message.

    Args:
        mean: The mean.
        total: How many values it would rest on without abstentions.
        scale: The lowest and the highest value.
        cluster: What the interval is clustered by.
    """
    estimate = Estimate(count=mean.n, total=total)
    if mean.value is None:
        estimate.undefined = "there are no values"
        return estimate
    estimate.value = mean.value
    if mean.lower is not None and mean.upper is not None:
        estimate.lower, estimate.upper = mean.lower, mean.upper
        method = "clopper-pearson" if mean.value in scale else "student-t, logit"
        estimate.interval_method = f"{method}, clustered by {cluster}"
    else:
        estimate.interval_withheld = f"there is one {cluster}, or the values do not differ"
    return estimate


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
