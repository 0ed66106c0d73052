"""Counts, costs, token counts and durations as text; consumption as numbers."""

from __future__ import annotations

from dramaturg.api.common.v1.provenance_pb2 import Usage


def counted(count: int, noun: str) -> str:
    """A number of things, such as "1 text" or "2,000 texts"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def money(dollars: float) -> str:
    """An amount of US dollars."""
    if not dollars:
        return "$0"
    return f"${dollars:,.4f}"


def consumption(usage: Usage) -> str:
    """Tokens and cost, to follow other text, such as ", 1,200 tokens, $0.0100". Empty: nothing is known."""
    tokens = usage.prompt_token_count + usage.completion_token_count
    text = f", {tokens:,} tokens" if tokens else ""
    if usage.HasField("cost_usd") and (usage.cost_usd or not usage.unpriced_call_count):
        bound = "at least " if usage.unpriced_call_count else ""
        text += f", {bound}{money(usage.cost_usd)}"
    if usage.estimated_token_count:
        text += f", at most {usage.estimated_token_count:,} tokens estimated"
    return text


def duration(seconds: float) -> str:
    """A time, such as "2 h 05 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def usage_summary(usage: Usage) -> dict[str, int | float | None]:
    """The consumption, every member as a number; an unknown cost is None."""
    known = {field.name for field, _ in usage.ListFields()}
    return {
        field.name: None if field.has_presence and field.name not in known else getattr(usage, field.name)
        for field in usage.DESCRIPTOR.fields
    }
