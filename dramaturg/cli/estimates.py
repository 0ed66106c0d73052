"""The options of a dry run, and how its estimate is printed."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunResponse
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.platform import PARTIAL, output
from dramaturg.cli.tables import print_tables
from dramaturg.results.quantities import money
from dramaturg.tables.model import Table, columns

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the expected calls, tokens, cost and time, and end. Exit code 4: they exceed the budget.",
    ),
]
Pilot = Annotated[
    int,
    typer.Option(
        min=0,
        max=50,
        metavar="N",
        help="With --dry-run: measure N samples, which are bought.",
        rich_help_panel=MORE,
    ),
]
NOT_KNOWN = "not known"


def print_estimate(estimate: EstimateRunResponse, *, as_json: bool) -> int:
    """Prints an estimate; returns the exit code."""
    if as_json:
        typer.echo(json.dumps(_describe(estimate), ensure_ascii=False))
    else:
        _print_tables(estimate)
    return PARTIAL if estimate.budget_exceeded else 0


def _describe(estimate: EstimateRunResponse) -> dict[str, Any]:
    return {
        "samples": estimate.sample_count,
        "invalid_rows": estimate.invalid_row_count,
        "model_calls": _known(estimate, "model_call_count"),
        "prompt_tokens": _known(estimate, "prompt_token_count"),
        "completion_tokens": _known(estimate, "completion_token_count"),
        "cost_usd": _known(estimate, "cost_usd"),
        "seconds": estimate.duration.ToNanoseconds() / 1e9 if estimate.HasField("duration") else None,
        "models": [
            {
                "role": model.role,
                "judge": model.judge,
                "model": model.model or None,
                "calls": model.call_count,
                "prompt_tokens": _known(model, "prompt_token_count"),
                "prompt_usd_per_million": _known(model, "prompt_usd_per_million"),
                "completion_usd_per_million": _known(model, "completion_usd_per_million"),
                "price_source": model.price_source or None,
            }
            for model in estimate.models
        ],
        "unknown": list(estimate.unknown),
        "budget_exceeded": list(estimate.budget_exceeded),
        "pilot_samples": estimate.pilot_sample_count,
        "pilot_cost_usd": _known(estimate.usage, "cost_usd"),
    }


def _print_tables(estimate: EstimateRunResponse) -> None:
    console = output()
    described = _describe(estimate)
    table = Table("", columns("expected", figures=("amount",)))
    table.add_row("samples", f"{estimate.sample_count:,}")
    for label, key in (
        ("model calls", "model_calls"),
        ("tokens sent", "prompt_tokens"),
        ("tokens received", "completion_tokens"),
    ):
        table.add_row(label, NOT_KNOWN if described[key] is None else f"{described[key]:,}")
    table.add_row("cost", NOT_KNOWN if described["cost_usd"] is None else money(described["cost_usd"]))
    table.add_row("seconds", NOT_KNOWN if described["seconds"] is None else f"{described['seconds']:,.0f}")
    models = Table(
        "",
        columns(
            "role", "judge", texts=("model", "prices"), figures=("calls", "tokens sent", "USD per million")
        ),
        heads=2,
    )
    for model in estimate.models:
        models.add_row(
            model.role,
            model.judge,
            model.model or NOT_KNOWN,
            model.price_source,
            f"{model.call_count:,}",
            f"{model.prompt_token_count:,}" if model.HasField("prompt_token_count") else NOT_KNOWN,
            f"{model.prompt_usd_per_million:g} / {model.completion_usd_per_million:g}"
            if model.HasField("prompt_usd_per_million")
            else NOT_KNOWN,
        )
    print_tables(console, table, models)
    if estimate.pilot_sample_count:
        cost = money(estimate.usage.cost_usd) if estimate.usage.HasField("cost_usd") else NOT_KNOWN
        console.print(f"measured with {estimate.pilot_sample_count} samples, cost: {cost}", soft_wrap=True)
    if estimate.invalid_row_count:
        console.print(f"{estimate.invalid_row_count:,} rows are no valid requests", soft_wrap=True)
    for sentence in estimate.unknown:
        console.print(f"not included: {sentence}", soft_wrap=True)
    for sentence in estimate.budget_exceeded:
        console.print(sentence, style="red", soft_wrap=True)


def _known(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None
