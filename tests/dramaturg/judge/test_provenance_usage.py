from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.judge.provenance import MAX_AMOUNT, add_usage, total_usage

FIELDS = [field.name for field in Usage.DESCRIPTOR.fields if field.name != "cost_usd"]
USAGES = st.builds(
    Usage,
    **{name: st.integers(0, 10**9) for name in FIELDS},
    cost_usd=st.none() | st.integers(0, 1000).map(float),
)


@given(USAGES, USAGES)
def test_adds_every_member(first: Usage, second: Usage) -> None:
    total = add_usage(first, second)
    for name in FIELDS:
        assert getattr(total, name) == getattr(first, name) + getattr(second, name)
    assert total.HasField("cost_usd") == (first.HasField("cost_usd") or second.HasField("cost_usd"))
    assert total.cost_usd == first.cost_usd + second.cost_usd


@given(st.lists(USAGES, max_size=5))
def test_the_order_does_not_matter(usages: list[Usage]) -> None:
    assert total_usage(usages) == total_usage(reversed(usages))


def test_nothing_costs_nothing_known() -> None:
    assert not total_usage([]).HasField("cost_usd")
    assert total_usage([Usage(cost_usd=0.0), Usage()]).HasField("cost_usd")


def test_absurd_amounts_are_bounded() -> None:
    claimed = Usage(prompt_token_count=2**64 - 1, cost_usd=float("inf"))
    total = total_usage([claimed, claimed, Usage(prompt_token_count=5, cost_usd=float("nan"))])
    assert (total.prompt_token_count, total.cost_usd) == (MAX_AMOUNT, MAX_AMOUNT)
    assert total_usage([Usage(cost_usd=-5.0), Usage(cost_usd=2.0)]).cost_usd == 2.0
