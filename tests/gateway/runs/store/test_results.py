from __future__ import annotations

from collections import defaultdict

import pytest

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from gateway.runs.store import RunStore
from tests.support.runs import TIMED_OUT, create, judged


def fill(store: RunStore) -> None:
    create(store, samples=6)
    said: list[dict[str, list[int]]] = [
        {"m": [True, True], "n": [False, TIMED_OUT]},
        {"m": [False, True]},
        {"n": [TIMED_OUT]},
        {"m": [True, False], "n": [True, True, True]},
    ]
    store.attempts.finish("run", 1, [judged(index, one) for index, one in enumerate(said)])  # type: ignore[arg-type] # bool is an int


def test_judgements_are_listed_whole_or_as_numbers(store: RunStore) -> None:
    fill(store)
    whole = store.results.page("run", after=(-1, -1), limit=99)
    numbers = store.results.page("run", after=(-1, -1), limit=99, numbers_only=True)
    assert [key for key, _ in whole] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0)] + [
        (3, place) for place in range(5)
    ]
    assert [key for key, _ in numbers] == [key for key, _ in whole]
    for (_, full), (_, bare) in zip(whole, numbers, strict=True):
        assert full.rationale
        assert full.provenance.name == "critic"
        for field in ("rationale", "provenance", "findings"):
            full.ClearField(field)
        assert full == bare
        assert bare.tags["level"] in {"easy", "hard"}
        assert bare.sample_id == f"s{bare.sample_index}"


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        (ResultFilter(models=["n"], measures=["c1"]), [(0, 3), (3, 3)]),
        (ResultFilter(outcomes=[OUTCOME_FAIL]), [(0, 2), (1, 0), (3, 1)]),
        (ResultFilter(abstain_reasons=[TIMED_OUT]), [(0, 3), (2, 0)]),
        (ResultFilter(outcomes=[OUTCOME_PASS], abstain_reasons=[TIMED_OUT]), []),
        (ResultFilter(models=["nobody"]), []),
    ],
)
def test_judgements_are_filtered(store: RunStore, where: ResultFilter, keys: list[tuple[int, int]]) -> None:
    fill(store)
    assert [key for key, _ in store.results.page("run", after=(-1, -1), limit=99, where=where)] == keys


def test_sums_are_those_of_the_judgements(store: RunStore) -> None:
    fill(store)
    for together in (False, True):
        values: defaultdict[tuple[str, str], dict[int, list[float | None]]] = defaultdict(dict)
        for _, result in store.results.page("run", after=(-1, -1), limit=99):
            key = result.model, "" if together else result.measure
            of_sample = values[key].setdefault(result.sample_index, [])
            of_sample.append(result.value if result.outcome != OUTCOME_ABSTAIN else None)
        found = {
            (sums.model, sums.measure): sums for sums in store.results.model_sums("run", together=together)
        }
        assert found.keys() == values.keys()
        for key, samples in values.items():
            sums = found[key]
            n = [sum(value is not None for value in sample) for sample in samples.values()]
            y = [sum(value or 0.0 for value in sample) for sample in samples.values()]
            assert sums.judgements == sum(map(len, samples.values()))
            assert (sums.judged, sums.samples) == (sum(n), sum(count > 0 for count in n))
            assert sums.total == sum(y)
            assert sums.squared_counts == sum(count**2 for count in n)
            assert sums.cross == sum(count * total for count, total in zip(n, y, strict=True))
            assert sums.squared_totals == sum(total**2 for total in y)
            abstained = sums.judgements - sums.judged
            assert dict(sums.abstentions_by_reason) == ({"TIMED_OUT": abstained} if abstained else {})


def test_pages_neither_repeat_nor_leave_out_while_rows_are_added(store: RunStore) -> None:
    create(store, samples=1400)
    outcomes = [judged(index, {"m": [True] * 5, "n": [False] * 4}) for index in range(1400)]
    rest = outcomes[::7]
    store.attempts.finish("run", 1, [outcome for outcome in outcomes if outcome.sample.index % 7])
    there = {(index, place) for index in range(1400) if index % 7 for place in range(9)}
    seen: list[tuple[int, int]] = []
    after = (-1, -1)
    while page := store.results.page("run", after=after, limit=997, numbers_only=True):
        seen += [key for key, _ in page]
        after = page[-1][0]
        store.attempts.finish("run", 1, [rest.pop() for _ in range(min(20, len(rest)))])
    assert len(seen) > 10_800
    assert seen == sorted(set(seen))
    assert there <= set(seen)


def test_all_judgements_are_iterated(store: RunStore) -> None:
    create(store, samples=150)
    store.attempts.finish("run", 1, [judged(index, {"m": [True] * 8}) for index in range(150)])
    found = [result.sample_index for result in store.results.iterate("run", ResultFilter(measures=["c3"]))]
    assert found == list(range(150))
    assert len(list(store.results.iterate("run"))) == 1200


def test_tags_are_named(store: RunStore) -> None:
    fill(store)
    assert store.samples.tag_names("run") == ["level"]
    assert store.samples.tag_names("nobody") == []


def test_every_text_of_a_judgement_may_hold_what_postgresql_keeps_not(store: RunStore) -> None:
    create(store, samples=1)
    texts = ("model", "candidate_id", "measure", "label", "role", "judge")
    outcome = judged(0, {"m": [True]})
    for result in outcome.results:
        for field in texts:
            setattr(result, field, f"{field}\0")
    store.attempts.finish("run", 1, [outcome])
    ((_, kept),) = store.results.page("run", after=(-1, -1), limit=9, numbers_only=True)
    for field in texts:
        assert getattr(kept, field) == f"{field}\N{REPLACEMENT CHARACTER}"
