from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.edges.order import Pair, merge_orders, pairs_of


def certain(pair: Pair) -> list[float]:
    """Alphabetical order, and sure of it; a model that only looks at what it is shown."""
    return [0.0, 1.0, 0.0] if pair.first < pair.second else [0.0, 0.0, 1.0]


def test_every_pair_is_read_in_both_orders_with_its_scenario() -> None:
    pairs = pairs_of("bake", ["a", "b", "c"])
    assert [(pair.first, pair.second) for pair in pairs] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
        ("b", "a"),
        ("c", "a"),
        ("c", "b"),
    ]
    assert pairs[0].texts == ("bake: a", "b")


@given(st.permutations(["a", "b", "c", "d"]))
def test_an_answer_belongs_to_its_pair_whatever_the_order_of_events(events: list[str]) -> None:
    merged = merge_orders(len(events), map(certain, pairs_of("s", events)))
    assert len(merged) == 12
    for (i, j), probability in merged.items():
        assert probability == float(events[i] < events[j])


def test_contradicting_answers_are_averaged() -> None:
    # Shown as (a, b): a first, rather sure. Shown as (b, a): b first, less sure.
    merged = merge_orders(2, [[0.1, 0.8, 0.1], [0.2, 0.5, 0.3]])
    assert merged == {(0, 1): (0.8 + 0.3) / 2, (1, 0): (0.1 + 0.5) / 2}
