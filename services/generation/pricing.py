"""The cost of calls, from a price table of the user."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from services.generation.calls import Answer

_MILLION = 1_000_000


class Price(BaseModel):
    """The prices of a model's tokens, in US dollars per million."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: float = Field(ge=0, allow_inf_nan=False)
    """Tokens sent."""
    completion: float = Field(ge=0, allow_inf_nan=False)
    """Tokens received."""
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Tokens sent that the provider served from its prompt cache. Absent: they cost what others do."""


_TABLE = TypeAdapter(dict[str, Price])


class PriceTable:
    """Prices by model name or by pattern (``*``, ``?`` and ``[...]``, as in a shell)."""

    def __init__(self, prices: Mapping[str, Price] | None = None) -> None:
        # The pattern that says most decides: the name itself first, then the longest.
        self._prices = sorted((prices or {}).items(), key=lambda entry: -len(entry[0].rstrip("*")))

    @classmethod
    def read(cls, path: Path) -> PriceTable:
        """Reads a TOML or JSON file of tables, for example ``["gpt-*"]``, each with the members of [Price].

        Raises:
            ValueError: the file cannot be read or is no such table; names the file.
        """
        try:
            text = path.read_text(encoding="utf-8")
            return cls(
                _TABLE.validate_python(json.loads(text) if path.suffix == ".json" else tomllib.loads(text))
            )
        except (OSError, ValueError, ValidationError) as error:
            raise ValueError(f"the price table {path} cannot be used: {error}") from error

    def price(self, model: str) -> Price | None:
        """The price of a model. None: it is not known."""
        return self._find(model)

    def cost(self, requested_model: str, answer: Answer) -> float | None:
        """The cost of the answer in US dollars. None: the price or the token counts are unknown."""
        if not self._prices:
            return None
        price = self._find(answer.model) or self._find(requested_model)
        if price is None or answer.counts is None:
            return None
        counts = answer.counts
        cached = price.prompt if price.cached is None else price.cached
        uncached_prompt = counts.prompt - counts.cached_prompt
        prompt = uncached_prompt * price.prompt + counts.cached_prompt * cached
        return (prompt + counts.completion * price.completion) / _MILLION

    def _find(self, model: str) -> Price | None:
        return (
            next((price for pattern, price in self._prices if fnmatchcase(model, pattern)), None)
            if model
            else None
        )
