"""What calls cost."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from services.generation.calls import Answer, TokenCounts
from services.generation.pricing import ListPrices, Price, PriceTable

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


# An environment that was set up before the package was needed lacks it.
needs_list_prices = pytest.mark.skipif(find_spec("genai_prices") is None, reason="needs genai-prices")
OPENAI = "https://api.openai.com/v1"


@needs_list_prices
def test_list_prices_hold_at_their_address_and_after_the_table_of_the_user() -> None:
    listed = ListPrices(OPENAI)
    counts = TokenCounts(prompt=1_000_000, completion=0)
    answer = Answer("x", model="gpt-4o-2024-08-06", counts=counts)
    assert listed.cost("gpt-4o", answer) == 2.5
    assert "genai-prices" in listed.source("gpt-4o")
    assert listed.price("gpt-4o-unknown") is None
    assert ListPrices("http://localhost:8000/v1").price("gpt-4o") is None
    assert ListPrices("https://models.example/v1").source("gpt-4o") == ""
    own = PriceTable({"gpt-4o": Price(prompt=1, completion=1)}, "own", listed)
    assert (own.cost("gpt-4o", answer), own.source("gpt-4o")) == (1, "own")
    assert own.cost("gpt-4o-mini", Answer("x", counts=counts)) == 0.15


@needs_list_prices
@pytest.mark.parametrize(
    ("address", "model"),
    [
        (OPENAI, "gpt-5-mini"),
        ("https://api.anthropic.com", "claude-sonnet-4-5"),
        ("https://generativelanguage.googleapis.com", "gemini-2.5-pro"),
        ("https://bedrock-runtime.us-east-1.amazonaws.com", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("https://name.openai.azure.com/openai/v1", "gpt-4o"),
        ("https://openrouter.ai/api/v1", "openai/gpt-4o"),
    ],
)
def test_cached_tokens_are_cheaper(address: str, model: str) -> None:
    price = ListPrices(address).price(model)
    assert price is not None
    assert price.cached is not None
    assert 0 < price.cached < price.prompt < price.completion < 100
    counts = TokenCounts(1000, 0, cached_prompt=900)
    cost = ListPrices(address).cost(model, Answer("x", counts=counts))
    assert cost == pytest.approx((100 * price.prompt + 900 * price.cached) / 1e6)


def test_an_unknown_price_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    table = PriceTable({"other": Price(prompt=1, completion=1)}, "own", ListPrices("http://localhost:1/v1"))
    for _ in range(3):
        assert table.cost("mine", Answer("x", counts=COUNTS)) is None
    assert caplog.text.count("mine") == 1


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
