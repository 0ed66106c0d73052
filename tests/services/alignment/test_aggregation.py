"""AggregateLabels: golden values of crowd-kit 1.4.2 (DawidSkene, run to convergence)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from dramaturg.api.alignment.v1 import aggregation_pb2 as pb

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

# fmt: off
VOTES = [
    "2220", "0000", "1-1-", "2222", "1111", "22-1", "11-1", "111-", "1212", "00-0",
    "1121", "0000", "2222", "0111", "1222", "0000", "0002", "1101", "--2-", "22-2",
    "0000", "0001", "-101", "2222", "0000", "---0", "0002", "1101", "0-00", "2222",
]
# fmt: on


def request(votes: list[str]) -> pb.AggregateLabelsRequest:
    message = pb.AggregateLabelsRequest(iteration_count=2000)
    for index, row in enumerate(votes):
        item = message.items.add(id=str(index))
        for annotator, label in zip("abcd", row, strict=False):
            if label != "-":
                item.annotations.add(annotator=annotator, labels=[label])
    return message


async def test_labels_and_annotators_are_those_of_the_reference_implementation(
    alignment: AlignmentServiceAsyncStub,
) -> None:
    found = await alignment.AggregateLabels(request(VOTES))
    assert found.converged
    assert [one.label for one in found.items[:12]] == list("201212112010")
    assert found.items[2].probabilities["2"] == pytest.approx(0.074822, abs=2e-3)
    assert dict(found.prior) == pytest.approx({"2": 0.336191, "0": 0.362076, "1": 0.301733}, abs=2e-3)
    third = found.annotators[2]
    cells = {(one.right, one.given): one.probability for one in third.confusion}
    assert third.annotator == "c"
    assert cells["2", "2"] == pytest.approx(0.864768, abs=2e-3)
    assert cells["1", "0"] == pytest.approx(0.372578, abs=2e-3)
    assert third.accuracy == pytest.approx(
        sum(found.prior[label] * cells[label, label] for label in found.prior)
    )
    assert third.item_count == sum(row[2] != "-" for row in VOTES)


async def test_ties_of_votes_are_listed_and_resolved_by_quality(
    alignment: AlignmentServiceAsyncStub,
) -> None:
    votes = ["0000", "1111"] * 15 + ["1011", "0100"] * 5 + ["01--", "----"]
    found = await alignment.AggregateLabels(request(votes))
    tied, empty = found.items[-2:]
    assert list(tied.majority) == ["0", "1"]
    assert tied.label == "0"
    assert (empty.label, list(empty.majority)) == ("", [])
    quality = {one.annotator: one.accuracy for one in found.annotators}
    assert quality["a"] > quality["b"]


async def test_annotations_with_several_labels_are_refused(alignment: AlignmentServiceAsyncStub) -> None:
    message = request(["00"])
    message.items[0].annotations[1].labels.append("1")
    with pytest.raises(grpc.aio.AioRpcError, match="2 labels; 1 is needed"):
        await alignment.AggregateLabels(message)
