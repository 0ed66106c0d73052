"""RankSystems: means, ranks, rank correlations and their stability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dramaturg.api.alignment.v1 import ranking_pb2 as pb
from dramaturg.service.errors import ServiceError
from services.alignment import ranking as ranking
from services.alignment.bootstrap import Resampling
from services.alignment.codec.systems import decode_ranking
from services.alignment.ranking import rank

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

Row = tuple[str, str, Mapping[str, float], Mapping[str, str]]


def no_checkpoint() -> None:
    pass


def request(
    rows: Sequence[Row], tags: Sequence[str] = (), macro: str = "", resamples: int = 0
) -> pb.RankSystemsRequest:
    message = pb.RankSystemsRequest(group_tags=tags, macro_tag=macro, resample_count=resamples, seed=4)
    for item, system, scores, own in rows:
        message.items.add(id=item, system=system, scores=scores, tags=own)
    return message


def ranked(
    rows: Sequence[Row], tags: Sequence[str] = (), macro: str = "", resamples: int = 0
) -> Sequence[pb.RankGroup]:
    message = request(rows, tags, macro, resamples)
    design = decode_ranking(message, no_checkpoint)
    return rank(design, Resampling(resamples, 4, 0.95, no_checkpoint)).groups


def table(means: Mapping[str, Sequence[float]], method: str = "m") -> list[Row]:
    """Systems with a score for each of some items."""
    return [
        (str(item), system, {method: score}, {})
        for system, scores in means.items()
        for item, score in enumerate(scores)
    ]


scores = st.lists(st.integers(0, 4), min_size=4, max_size=4)
systems = st.dictionaries(st.sampled_from("abcdef"), st.tuples(scores, scores), min_size=1)


@given(systems)
@settings(max_examples=60)
def test_ranks_and_correlations_agree_with_scipy(some: dict[str, tuple[list[int], list[int]]]) -> None:
    rows: list[Row] = [
        (str(item), system, {"x": first[item], "y": second[item]}, {})
        for system, (first, second) in some.items()
        for item in range(4)
    ]
    (found,) = ranked(rows)
    names = sorted(some)
    means = [[fmean(some[name][side]) for name in names] for side in (0, 1)]
    for side, method in enumerate(found.methods):
        expected = dict(zip(names, stats.rankdata([-mean for mean in means[side]]), strict=True))
        assert {one.system: one.rank for one in method.systems} == expected
        assert [one.rank for one in method.systems] == sorted(expected.values())
        for one in method.systems:
            assert one.mean.value == pytest.approx(means[side][names.index(one.system)])
    (pair,) = found.correlations
    if len(names) < 3:
        assert pair.kendall.undefined == f"{len(names)} systems are fewer than 3"
    elif len(set(means[0])) == 1 or len(set(means[1])) == 1:
        assert "all systems are tied by" in pair.spearman.undefined
    else:
        assert pair.kendall.value == pytest.approx(stats.kendalltau(*means).statistic)
        assert pair.spearman.value == pytest.approx(stats.spearmanr(np.array(means).T).statistic)


def test_a_clear_ranking_is_stable_and_a_close_one_is_not() -> None:
    generator = np.random.default_rng(1)
    noise = generator.normal(0, 1, (4, 40))
    clear = {name: (noise[index] + 3 * index).tolist() for index, name in enumerate("abcd")}
    close = {name: (noise[index] + 0.05 * index).tolist() for index, name in enumerate("abcd")}
    steady, shaky = (ranked(table(means), resamples=400)[0].methods[0] for means in (clear, close))
    assert [one.system for one in steady.systems] == list("dcba")
    assert steady.stability.value == pytest.approx(1.0)
    assert shaky.stability.HasField("value")
    assert shaky.stability.value < 0.8
    first = shaky.systems[0]
    assert first.rank_lower == 1
    assert first.HasField("rank_upper")
    assert first.rank_upper > 1
    assert sum(one.first_share for one in shaky.systems) == pytest.approx(1.0)
    assert [(one.rank_lower, one.rank_upper) for one in steady.systems] == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_differences_that_all_items_show_are_stable_although_items_differ() -> None:
    """Items are drawn for all systems together, so what is hard for all moves no ranks."""
    difficulty = np.random.default_rng(3).normal(0, 100, 30)
    means = {name: (difficulty + index).tolist() for index, name in enumerate("abc")}
    assert ranked(table(means), resamples=200)[0].methods[0].stability.value == pytest.approx(1.0)


def test_values_of_the_macro_tag_weigh_the_same() -> None:
    rows: list[Row] = [
        *[(str(index), "a", {"m": 1.0}, {"criterion": "x"}) for index in range(8)],
        ("0", "a", {"m": 0.0}, {"criterion": "y"}),
        ("0", "b", {"m": 0.6}, {"criterion": "x"}),
        ("0", "b", {"m": 0.6}, {"criterion": "y"}),
        ("0", "c", {"m": 0.9}, {"criterion": "x"}),
    ]
    (found,) = ranked(rows, macro="criterion")
    by_system = {one.system: one for one in found.methods[0].systems}
    assert by_system["a"].mean.value == pytest.approx(0.5)
    assert by_system["b"].rank == 1
    assert not by_system["c"].HasField("rank")
    assert by_system["c"].mean.undefined == "it has no score for a part of the items"


def test_groups_of_several_tags() -> None:
    rows: list[Row] = [
        ("1", "a", {"m": 1.0}, {"size": "7B", "topic": "food"}),
        ("2", "a", {"m": 0.0}, {"size": "7B", "topic": "art"}),
        ("1", "b", {"m": 0.5}, {"size": "70B", "topic": "food"}),
        ("2", "b", {"m": 0.6}, {"size": "70B", "topic": "art"}),
    ]
    found = ranked(rows, tags=["topic", "size"])
    assert [(one.tag, one.value) for one in found] == [
        ("", ""),
        ("topic", "art"),
        ("topic", "food"),
        ("size", "70B"),
        ("size", "7B"),
    ]
    assert [one.system for one in found[1].methods[0].systems] == ["b", "a"]
    assert [one.system for one in found[3].methods[0].systems] == ["b"]


def test_means_that_differ_by_rounding_are_a_tie() -> None:
    means = {"a": [0.1, 0.2, 0.3], "b": [0.3, 0.2, 0.1], "c": [0.2, 0.2, 0.2]}
    (found,) = ranked(table(means))
    assert [one.rank for one in found.methods[0].systems] == [2, 2, 2]
    assert found.methods[0].stability.undefined == "there are no resamples"


def test_coverage_and_standard_error() -> None:
    rows: list[Row] = [("1", "a", {"m": 1.0}, {}), ("2", "a", {"m": 0.0}, {}), ("3", "a", {"n": 1.0}, {})]
    (found,) = ranked(rows)
    mean = found.methods[0].systems[0].mean
    assert (mean.count, mean.total) == (2, 3)
    assert mean.standard_error == pytest.approx(0.5)


@given(systems, st.randoms())
@settings(max_examples=20)
def test_order_does_not_matter(some: dict[str, tuple[list[int], list[int]]], random: Random) -> None:
    rows = table({system: [float(score) for score in first] for system, (first, _) in some.items()})
    assert ranked(random.sample(rows, len(rows)), resamples=20) == ranked(rows, resamples=20)


def test_too_many_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "MAX_SYSTEMS", 2)
    with pytest.raises(ServiceError, match="3 systems; at most 2"):
        ranked(table({"a": [1.0], "b": [1.0], "c": [1.0]}))


async def test_ranking_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    scores = [1.0, 2.0, 3.0] * 4
    rows = table({"a": scores, "b": [one + 1 for one in scores], "c": [one / 3 for one in scores]})
    message = request(rows, resamples=50)
    response = await alignment.RankSystems(message)
    (group,) = response.groups
    best, *others = group.methods[0].systems
    assert (best.system, best.rank, best.rank_lower, best.rank_upper, best.first_share) == ("b", 1, 1, 1, 1)
    assert best.mean.lower <= 3.0 <= best.mean.upper
    assert not best.HasField("difference")
    assert [one.difference.value for one in others] == pytest.approx([-1, -7 / 3])
    assert all(one.p_value <= one.adjusted_p_value <= 0.05 for one in others)
    message.baseline = "c"
    best = (await alignment.RankSystems(message)).groups[0].methods[0].systems[0]
    assert best.difference.value == pytest.approx(7 / 3)
    assert best.difference.lower < best.difference.value < best.difference.upper
    message.baseline = "d"
    with pytest.raises(grpc.aio.AioRpcError, match="which no item has; there are a, b, c"):
        await alignment.RankSystems(message)


async def test_a_system_has_an_item_once(alignment: AlignmentServiceAsyncStub) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="which system 'a' has already") as refused:
        await alignment.RankSystems(request([*table({"a": [1.0]}), *table({"a": [2.0]})]))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
