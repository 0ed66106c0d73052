from __future__ import annotations

from collections import Counter

import pytest

from dramaturg_research.training.epochs import relation_of, sample_epoch
from dramaturg_research.training.scripts import make_script
from services.edges.order import Relation
from services.edges.plan import Label

# root -> a -> b -> leaf and root -> c -> leaf
SCRIPT = make_script("s", ["root", "a", "b", "c", "leaf"], [(0, 1), (1, 2), (2, 4), (0, 3), (3, 4)])


@pytest.mark.parametrize(
    ("first", "second", "precedes", "edge"),
    [
        (1, 2, Relation.FORWARD, Relation.FORWARD),
        (2, 1, Relation.BACKWARD, Relation.BACKWARD),
        (0, 2, Relation.FORWARD, Relation.NEITHER),
        (4, 1, Relation.BACKWARD, Relation.NEITHER),
        (1, 3, Relation.NEITHER, Relation.NEITHER),
    ],
)
def test_the_two_labels(first: int, second: int, precedes: Relation, edge: Relation) -> None:
    assert relation_of(SCRIPT, first, second, Label.PRECEDES) is precedes
    assert relation_of(SCRIPT, first, second, Label.EDGE) is edge


def test_an_epoch_shows_every_inner_pair_once_and_one_of_each_end() -> None:
    examples = sample_epoch([SCRIPT], Label.PRECEDES, seed=0, epoch=0)
    seen = Counter(frozenset((example.pair.first, example.pair.second)) for example in examples)
    assert all(seen[frozenset(pair)] == 1 for pair in ("ab", "ac", "bc"))
    for end in ("root", "leaf"):
        assert 1 <= sum(end in pair for pair in seen) <= 2
    assert sum(seen.values()) == 5


def test_every_example_has_the_right_answer() -> None:
    place = {event: index for index, event in enumerate(SCRIPT.events)}
    for epoch in range(5):
        for example in sample_epoch([SCRIPT], Label.EDGE, seed=1, epoch=epoch):
            first, second = place[example.pair.first], place[example.pair.second]
            assert example.relation is relation_of(SCRIPT, first, second, Label.EDGE)


def test_a_draw_depends_on_seed_and_epoch_alone() -> None:
    scripts = [SCRIPT] * 10
    first = sample_epoch(scripts, Label.PRECEDES, seed=0, epoch=0)
    assert sample_epoch(scripts, Label.PRECEDES, seed=0, epoch=0) == first
    assert sample_epoch(scripts, Label.PRECEDES, seed=0, epoch=1) != first
    assert sample_epoch(scripts, Label.PRECEDES, seed=1, epoch=0) != first


def test_both_orders_of_a_pair_are_shown_in_time() -> None:
    shown = {
        (example.pair.first, example.pair.second)
        for epoch in range(20)
        for example in sample_epoch([SCRIPT], Label.PRECEDES, seed=0, epoch=epoch)
    }
    assert {("a", "b"), ("b", "a")} <= shown


def test_a_script_of_two_events_has_one_pair_in_either_role() -> None:
    script = make_script("s", ["a", "b"], [(0, 1)])
    examples = sample_epoch([script], Label.PRECEDES, seed=0, epoch=0)
    assert {frozenset((example.pair.first, example.pair.second)) for example in examples} == {frozenset("ab")}
