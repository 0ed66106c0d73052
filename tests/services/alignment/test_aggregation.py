"""AggregateLabels: golden values of crowd-kit 1.4.2 (DawidSkene, run to convergence), and dependence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from dramaturg.api.alignment.v1 import aggregation_pb2 as pb
from services.alignment.aggregation import Dependence, Votes, aggregate, diagnose

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

Table = NDArray[np.intp]
"""Items x annotators: labels from 0; -1 where there is none."""

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
        for annotator, label in zip("abcdefgh", row, strict=False):
            if label != "-":
                item.annotations.add(annotator=annotator, labels=[label])
    return message


def rows(table: Table) -> list[str]:
    return ["".join("-" if label < 0 else str(label) for label in row) for row in table]


def votes_of(table: Table) -> Votes:
    item, annotator = np.nonzero(table >= 0)
    annotators = [str(one) for one in range(table.shape[1])]
    labels = [str(label) for label in range(table.max() + 1)]
    return Votes(item, annotator, table[item, annotator], len(table), annotators, labels)


def examined(table: Table) -> Dependence:
    votes = votes_of(table)
    return diagnose(votes.item, votes.annotator, votes.label, votes.annotators, lambda: None)


def independent(
    generator: np.random.Generator, items: int, accuracies: list[float] | NDArray[np.float64]
) -> tuple[Table, Table]:
    """Labels of annotators who err independently, and the right ones."""
    right = (generator.random(items) < 0.6).astype(np.intp)
    wrong = generator.random((items, len(accuracies))) >= np.asarray(accuracies)
    return np.where(wrong, 1 - right[:, np.newaxis], right[:, np.newaxis]), right


def test_labels_and_annotators_are_those_of_the_reference_implementation() -> None:
    """Each item a hundred times, so that the prior has no weight."""
    table = np.array([[-1 if label == "-" else int(label) for label in row] for row in VOTES], np.intp)
    votes = votes_of(np.tile(table, (100, 1)))
    found = aggregate(votes, np.ones(4), 2000, lambda: None)
    assert found.converged
    assert found.probabilities[:12].argmax(axis=1).tolist() == list(map(int, "201212112010"))
    assert found.probabilities[2, 2] == pytest.approx(0.074822, abs=4e-3)
    assert found.shares.tolist() == pytest.approx([0.362076, 0.301733, 0.336191], abs=4e-3)
    third = found.confusion[2]
    assert third[2, 2] == pytest.approx(0.864768, abs=4e-3)
    assert third[1, 0] == pytest.approx(0.372578, abs=4e-3)
    assert found.accuracies()[2] == pytest.approx(float(found.shares @ np.diag(third)))


async def test_ties_of_votes_are_listed_and_resolved_by_quality(
    alignment: AlignmentServiceAsyncStub,
) -> None:
    table, _ = independent(np.random.default_rng(2), 200, [0.95, 0.65, 0.85, 0.8])
    found = await alignment.AggregateLabels(request([*rows(table), "01--", "----"]))
    assert (found.unidentified, found.effective_annotator_count) == ("", 4)
    tied, empty = found.items[-2:]
    assert list(tied.majority) == ["0", "1"]
    assert tied.label == "0"
    assert (empty.label, list(empty.majority)) == ("", [])
    quality = {one.annotator: one for one in found.annotators}
    assert quality["a"].accuracy > quality["b"].accuracy
    assert quality["a"].item_count == 201


async def test_annotations_with_several_labels_are_refused(alignment: AlignmentServiceAsyncStub) -> None:
    message = request(["00"])
    message.items[0].annotations[1].labels.append("1")
    with pytest.raises(grpc.aio.AioRpcError, match="2 labels; 1 is needed"):
        await alignment.AggregateLabels(message)


async def test_two_copies_of_a_judge_have_one_vote(alignment: AlignmentServiceAsyncStub) -> None:
    """Without it the copies are always right: they agree with each other more than with anybody."""
    table, right = independent(np.random.default_rng(5), 400, [0.7, 0.7, 0.85, 0.85])
    table[:, 1] = table[:, 0]
    found = await alignment.AggregateLabels(request(rows(table)))
    assert (found.unidentified, found.effective_annotator_count) == ("", 3)
    (pair,) = found.dependent_pairs
    assert (pair.first, pair.second, pair.item_count, pair.error_correlation) == ("a", "b", 400, 1)
    assert [one.vote_weight for one in found.annotators] == [0.5, 0.5, 1, 1]
    accuracies = [one.accuracy for one in found.annotators]
    assert accuracies == pytest.approx([(table[:, one] == right).mean() for one in range(4)], abs=0.06)
    alone = aggregate(votes_of(table), np.ones(4), 2000, lambda: None)
    assert alone.accuracies()[0] > 0.95

    three = await alignment.AggregateLabels(request(rows(table[:, :3])))
    assert three.unidentified == "3 annotators that differ are needed, there are 2"
    assert not three.annotators
    assert not three.prior
    assert {one.label for one in three.items} == {""}
    assert list(three.items[0].majority) == [str(table[0, 0])]


def test_rare_labels_of_one_annotator_take_no_items() -> None:
    """25 annotators, of whom one gives a word of its own to one item of ten."""
    generator = np.random.default_rng(8)
    right = generator.integers(0, 4, 350)
    wrong = generator.random((350, 25)) > 0.7
    table = np.where(wrong, generator.integers(0, 4, (350, 25)), right[:, np.newaxis])
    own = generator.random(350) < 0.1
    table[own, 0] = 4
    found = aggregate(votes_of(table), np.ones(25), 200, lambda: None)
    labels = found.probabilities.argmax(axis=1)
    assert not (labels == 4).any()
    assert (labels == right).mean() > 0.95


def errors_in_common(generator: np.random.Generator, items: int) -> Table:
    """Eight judges, of whom three follow a text's length in half of the items."""
    table, right = independent(generator, items, generator.uniform(0.75, 0.9, 8))
    longer = np.where(generator.random(items) < 0.7, right, 1 - right)
    follows = generator.random((items, 3)) < 0.5
    table[:, :3] = np.where(follows, longer[:, np.newaxis], table[:, :3])
    return table


def unlike(generator: np.random.Generator, items: int) -> Table:
    """Four judges, of whom two are nearly copies."""
    table, _ = independent(generator, items, [0.75, 0.75, 0.8, 0.85])
    table[:, 1] = np.where(generator.random(items) < 0.03, 1 - table[:, 0], table[:, 0])
    return table


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "lowest", "highest", "unidentified"),
    [
        (lambda g, n: independent(g, n, g.uniform(0.65, 0.95, 4))[0], 0.0, 0.05, 0.05),
        (lambda g, n: independent(g, n, g.uniform(0.65, 0.95, 6))[0], 0.0, 0.05, 0.05),
        (lambda g, n: independent(g, n, g.uniform(0.65, 0.95, 12))[0], 0.0, 0.05, 0.05),
        (errors_in_common, 0.7, 1.0, 0.05),
        (unlike, 0.0, 0.2, 1.0),
        (lambda g, n: g.integers(0, 2, (n, 5)), 0.0, 0.05, 1.0),
    ],
    ids=["four", "six", "twelve", "errors in common", "four with near copies", "chance"],
)
def test_dependence_is_shown_where_it_is(
    make: Callable[[np.random.Generator, int], Table], lowest: float, highest: float, unidentified: float
) -> None:
    """The shares of 40 repetitions of 500 items with dependent pairs, and without identification."""
    found = [examined(make(np.random.default_rng(seed), 500)) for seed in range(40)]
    shown = sum(bool(one.pairs) for one in found) / len(found)
    refused = sum(bool(one.unidentified) for one in found) / len(found)
    assert lowest <= shown <= highest, shown
    assert refused <= unidentified if unidentified < 1 else refused >= 0.8, refused
