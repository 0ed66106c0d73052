"""The cost of calls, from a price table of the user and the list prices of well-known providers."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from services.generation.calls import Answer, TokenCounts

_MILLION = 1_000_000
STANDARD_BATCH_SHARE = 0.5
"""The share of the price that tokens cost in a batch, as OpenAI, Anthropic and Google state it."""


class Price(BaseModel):
    """The prices of a model's tokens, in US dollars per million."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: float = Field(ge=0, allow_inf_nan=False)
    """Tokens sent."""
    completion: float = Field(ge=0, allow_inf_nan=False)
    """Tokens received."""
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Tokens sent that the provider served from its prompt cache. Absent: they cost what others do."""
    reasoning: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Tokens of reasoning, where the provider counts them. Absent: they cost what others received do."""
    batch: float = Field(default=STANDARD_BATCH_SHARE, ge=0, le=1)
    """The share of these prices that tokens cost in a batch."""


_TABLE = TypeAdapter(dict[str, Price])
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})

logger = logging.getLogger(__name__)


class PriceTable:
    """Prices by model name or by pattern (``*``, ``?`` and ``[...]``, as in a shell)."""

    def __init__(
        self,
        prices: Mapping[str, Price] | None = None,
        source: str = "the price table of the provider",
        fallback: PriceTable | None = None,
    ) -> None:
        """Makes a table.

        Args:
            prices: The prices by name or pattern.
            source: Where they are from.
            fallback: The table for models that this one lacks.
        """
        self._source = source
        self._fallback = fallback
        self._unpriced: set[str] = set()
        # The pattern that says most decides: the name itself first, then the longest.
        self._prices = sorted((prices or {}).items(), key=lambda entry: -len(entry[0].rstrip("*")))

    @classmethod
    def read(cls, path: Path, fallback: PriceTable | None = None) -> PriceTable:
        """Reads a TOML or JSON file of tables, for example ``["gpt-*"]``, each with the members of [Price].

        Args:
            path: The file.
            fallback: The table for models that the file lacks.

        Raises:
            ValueError: the file cannot be read or is no such table; names the file.
        """
        try:
            text = path.read_text(encoding="utf-8")
            prices = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
            return cls(_TABLE.validate_python(prices), str(path), fallback)
        except (OSError, ValueError, ValidationError) as error:
            raise ValueError(f"the price table {path} cannot be used: {error}") from error

    def price(self, model: str) -> Price | None:
        """The price of a model. None: it is not known."""
        return self._find(model) or (None if self._fallback is None else self._fallback.price(model))

    def source(self, model: str) -> str:
        """The source of the price of a model. Empty: the price is not known."""
        if self._find(model) is not None:
            return self._source
        return "" if self._fallback is None else self._fallback.source(model)

    def cost(
        self, requested_model: str, answer: Answer, estimated: TokenCounts | None = None
    ) -> float | None:
        """The cost of an answer in US dollars. None: the price or the token counts are unknown.

        Args:
            requested_model: The model of the call.
            answer: The answer.
            estimated: The token counts of an answer that states none.
        """
        price = self._find(answer.model) or self._find(requested_model)
        if price is None:
            fallback = self._fallback
            if fallback is not None:
                return fallback.cost(requested_model, answer, estimated)
            if requested_model not in self._unpriced:
                self._unpriced.add(requested_model)
                logger.warning("the price of the model %r is not known: name a price table", requested_model)
            return None
        counts = answer.counts or estimated
        if counts is None:
            return None
        cached = price.prompt if price.cached is None else price.cached
        uncached_prompt = counts.prompt - counts.cached_prompt
        prompt = uncached_prompt * price.prompt + counts.cached_prompt * cached
        reasoning = price.completion if price.reasoning is None else price.reasoning
        completion = (counts.completion - counts.reasoning) * price.completion + counts.reasoning * reasoning
        return (prompt + completion) * (price.batch if answer.batched else 1) / _MILLION

    def _find(self, model: str) -> Price | None:
        return (
            next((price for pattern, price in self._prices if fnmatchcase(model, pattern)), None)
            if model
            else None
        )


class ListPrices(PriceTable):
    """The list prices of the models at an address, from the package genai-prices.

    They are for standard requests: without discounts or surcharges of batches, priority or long contexts.
    """

    def __init__(self, base_url: str) -> None:
        """Loads the prices, unless the address is on this machine.

        Args:
            base_url: The address, by which the package knows the provider. Others have no prices.
        """
        super().__init__()
        self._found: dict[str, Price | None] = {}
        if urlsplit(base_url).hostname in _HERE:
            self._look: Callable[[str], Price | None] = lambda _: None
            return
        try:
            # Loaded with the provider and not with a call, which it would take longer than.
            import genai_prices
            from genai_prices.data_snapshot import get_snapshot
        except ImportError:
            logger.warning("list prices are not known: the package genai-prices is not installed")
            self._look = lambda _: None
            return
        snapshot = get_snapshot()
        self._source = f"list price, by genai-prices {genai_prices.__version__}; check it"

        def look(model: str) -> Price | None:
            try:
                _, info = snapshot.find_provider_model(model, None, None, base_url)
            except LookupError:
                return None
            return _price(info.get_prices(datetime.now(UTC)))

        self._look = look

    def _find(self, model: str) -> Price | None:
        if model not in self._found:
            if len(self._found) >= _MOST_MODELS:
                self._found.clear()
            self._found[model] = self._look(model) if model else None
        return self._found[model]


_MOST_MODELS = 1000


def _price(listed: Any) -> Price | None:
    prompt, completion, cached = (
        getattr(listed, name, None) for name in ("input_mtok", "output_mtok", "cache_read_mtok")
    )
    if prompt is None or completion is None:
        return None
    return Price(
        prompt=_dollars(prompt),
        completion=_dollars(completion),
        cached=None if cached is None else _dollars(cached),
    )


def _dollars(price: Any) -> float:
    """A price per million tokens; of one with tiers that of the first."""
    return float(getattr(price, "base", price))
