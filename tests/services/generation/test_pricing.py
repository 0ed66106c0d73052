"""What calls cost."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from services.generation import pricing
from services.generation.calls import Answer, TokenCounts
from services.generation.pricing import Price, PriceTable

LIST_PRICES = Path(pricing.__file__).with_name("list_prices.toml")
TABLE = PriceTable(
    {
        "*": Price(prompt=1, completion=1),
        "big-*": Price(prompt=2, completion=10, cached=0.5),
        "big-model-2026": Price(prompt=3, completion=30),
    }
)
COUNTS = TokenCounts(prompt=1_000_000, completion=100_000, cached_prompt=400_000)


@pytest.mark.parametrize(
    ("requested", "answered", "cost"),
    [
        ("small", "", 1.1),
        ("big-x", "", 0.6 * 2 + 0.4 * 0.5 + 0.1 * 10),
        ("big-model-2026", "", 3 + 3),
        ("big-model", "big-model-2026", 3 + 3),
        ("big-model", "big-model-2025", 0.6 * 2 + 0.4 * 0.5 + 0.1 * 10),
    ],
)
def test_the_most_specific_price_of_the_model_that_answered_counts(
    requested: str, answered: str, cost: float
) -> None:
    assert TABLE.cost(requested, Answer("x", model=answered, counts=COUNTS)) == pytest.approx(cost)


def test_reasoning_has_a_price_of_its_own_where_stated() -> None:
    counts = TokenCounts(prompt=0, completion=1_000_000, reasoning=400_000)
    for price, cost in (
        (Price(prompt=1, completion=10), 10),
        (Price(prompt=1, completion=10, reasoning=5), 8),
    ):
        table = PriceTable({"m": price})
        assert table.cost("m", Answer("x", counts=counts)) == pytest.approx(cost)


def test_list_prices_hold_at_their_host_and_after_the_table_of_the_user() -> None:
    listed = PriceTable.listed("api.openai.com")
    counts = TokenCounts(prompt=1_000_000, completion=0)
    answer = Answer("x", model="gpt-4o-2024-08-06", counts=counts)
    assert listed.cost("gpt-4o", answer) == 2.5
    assert "as of 20" in listed.source("gpt-4o")
    assert listed.price("gpt-4o-unknown") is None
    assert PriceTable.listed("localhost").price("gpt-4o") is None
    assert PriceTable.listed(None).source("gpt-4o") == ""
    own = PriceTable({"gpt-4o": Price(prompt=1, completion=1)}, "own", listed)
    assert (own.cost("gpt-4o", answer), own.source("gpt-4o")) == (1, "own")
    assert own.cost("gpt-4o-mini", Answer("x", counts=counts)) == 0.15


@pytest.mark.parametrize("host", ["api.openai.com", "api.anthropic.com"])
def test_list_prices_are_plausible(host: str) -> None:
    table = tomllib.loads(LIST_PRICES.read_text())["hosts"][host]
    assert table["source"].startswith("https://")
    for price in table["models"].values():
        assert 0 < price["cached"] < price["prompt"] < price["completion"] < 100


def test_an_unknown_price_or_count_is_an_unknown_cost() -> None:
    assert PriceTable().cost("m", Answer("x", counts=COUNTS)) is None
    assert TABLE.cost("m", Answer("x")) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.toml", "[m]\nprompt = 2\ncompletion = 4\n"),
        ("p.json", '{"m": {"prompt": 2, "completion": 4}}'),
    ],
)
def test_a_table_is_read_from_toml_or_json(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    cost = PriceTable.read(tmp_path / name).cost("m", Answer("x", counts=TokenCounts(10, 5)))
    assert cost == pytest.approx(40e-6)


@pytest.mark.parametrize(
    "content",
    [
        "[m]\nprompt = 2\n",
        "[m]\nprompt = -1\ncompletion = 1\n",
        "[m]\nprompt = 1\ncompletion = 1\nx = 1",
        "m = 1",
        "[",
    ],
)
def test_a_table_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.toml").write_text(content)
    with pytest.raises(ValueError, match=r"p\.toml"):
        PriceTable.read(tmp_path / "p.toml")
