"""Shares of categories with their intervals, as AlignmentService measures them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dramaturg.api.alignment.v1.accuracy_pb2 import Grouping, MeasureAccuracyRequest
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

_GROUP, _CATEGORY, _UNIT = "group", "category", "unit"


class Counted(NamedTuple):
    """An item that has one category."""

    group: str
    category: str
    unit: str = ""
    """What it is of: items of one unit are not independent. Empty: a unit of its own."""


async def measure_shares(
    service: AlignmentServiceAsyncStub, items: Iterable[Counted], categories: Sequence[str]
) -> Mapping[tuple[str, str], Estimate]:
    """The share of each category among the items of a group, by group and category.

    The interval is Wilson's, clustered by unit: a share is the accuracy of guessing the category always.

    Raises:
        grpc.aio.AioRpcError: The service failed.
    """
    request = MeasureAccuracyRequest(groupings=[Grouping(tags=[_GROUP, _CATEGORY])], cluster_tag=_UNIT)
    for item in items:
        for category in categories:
            tags = {_GROUP: item.group, _CATEGORY: category}
            if item.unit:
                tags[_UNIT] = item.unit
            request.items.add(gold=item.category, predicted=category, tags=tags)
    if not request.items:
        return {}
    groups = (await service.MeasureAccuracy(request)).groups
    return {(one.tags[_GROUP], one.tags[_CATEGORY]): one.accuracy for one in groups}
