"""A script as a model reads it whole: the scenario and all events in one sequence of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from services.edges.inference import WindowError

MAX_SCENARIO_TOKENS, MAX_EVENT_TOKENS = 60, 40
"""Longer texts are cut, so that one of them cannot take the window from all others."""

# An upper bound of the text of a window; longer texts only cost time.
_CHARACTERS_PER_TOKEN = 20

Span = tuple[int, int]
"""The places of an event's tokens in a sequence: the first, and the one after the last."""


@dataclass(frozen=True)
class ScriptTokens:
    scenario: tuple[int, ...]
    events: tuple[tuple[int, ...], ...]
    truncated: bool
    """Whether a text was longer than its part and cut."""

    @property
    def length(self) -> int:
        """The number of tokens of the whole sequence."""
        return 2 + len(self.scenario) + sum(len(event) + 1 for event in self.events)

    def sequence(self, order: Iterable[int], start: int, separator: int) -> tuple[list[int], list[Span]]:
        """Start, scenario, and the events in an order, each with a separator behind it.

        Args:
            order: The places of the events.
            start: The token that sequences start with.
            separator: The token between texts.

        Returns:
            The sequence, and for each event, in that order, the span of its tokens with its separator.
        """
        sequence = [start, *self.scenario, separator]
        spans = []
        for event in order:
            first = len(sequence)
            sequence += [*self.events[event], separator]
            spans.append((first, len(sequence)))
        return sequence, spans


def tokenize_script(tokenizer: Any, scenario: str, events: Sequence[str], window: int) -> ScriptTokens:
    """Reads a script.

    Args:
        tokenizer: Of transformers.
        scenario: What the script is for.
        events: The events' texts.
        window: The most tokens of the sequence.

    Raises:
        WindowError: They do not fit, even when long texts are cut.
    """
    limits = [MAX_SCENARIO_TOKENS] + [MAX_EVENT_TOKENS] * len(events)
    texts = [
        text[: limit * _CHARACTERS_PER_TOKEN] for text, limit in zip((scenario, *events), limits, strict=True)
    ]
    # Not verbose: a text that is longer than the window would be warned of, though it is cut below.
    read = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    first, *others = (tuple(ids[:limit]) for ids, limit in zip(read, limits, strict=True))
    tokens = ScriptTokens(
        first,
        tuple(others),
        truncated=any(len(ids) > limit for ids, limit in zip(read, limits, strict=True))
        or any(len(text) > len(cut) for text, cut in zip((scenario, *events), texts, strict=True)),
    )
    if tokens.length > window:
        raise WindowError(tokens.length, window)
    return tokens


def orders_to_read(events: Sequence[str], count: int) -> list[list[int]]:
    """Orders in which a model reads the events of a script, whose answers are then averaged.

    They depend on the texts alone, so that the order in which events are given decides nothing.

    Args:
        events: The events' texts.
        count: How many orders.

    Returns:
        For each order the places of the events.
    """
    by_text = sorted(range(len(events)), key=events.__getitem__)
    return [Random(index).sample(by_text, len(by_text)) for index in range(count)]  # noqa: S311


def stack_sequences(
    read: Sequence[tuple[Sequence[int], Sequence[Span]]], padding: int
) -> tuple[Any, Any, Any]:
    """Stacks sequences and their spans into tensors. It needs torch.

    Args:
        read: As ``ScriptTokens.sequence`` gives them; at least one.
        padding: The token that fills up.

    Returns:
        The tokens and the mask, both (scripts, tokens), whole numbers; and float matrices (scripts, events,
        tokens) that make of the vectors of tokens the means of events.
    """
    import torch

    length = max(len(sequence) for sequence, _ in read)
    ids = torch.full((len(read), length), padding)
    mask = torch.zeros(len(read), length, dtype=torch.long)
    means = torch.zeros(len(read), max(len(spans) for _, spans in read), length)
    for row, (sequence, spans) in enumerate(read):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
        for place, (first, end) in enumerate(spans):
            means[row, place, first:end] = 1 / (end - first)
    return ids, mask, means
