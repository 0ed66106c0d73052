"""Prints the estimate of a dry run and the summary of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunResponse
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions, TagGrouping
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.platform import PARTIAL, fail, gateway, output
from dramaturg.cli.tables import print_sections, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.files import read_results
from dramaturg.results.quantities import money
from dramaturg.summaries.failures import worst_failures
from dramaturg.tables import sections
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


_ROLES = ("alignment", "graph")
"""The roles that compute statistics; a gateway started for the command serves no others."""
_FIRST_SAMPLES = 20
_REASON_LENGTH = 160


def summary_options(
    groupings: Sequence[str] | None,
    *,
    aced_kept: bool = False,
    seed: int = 0,
    model_groups: Sequence[str] | None = None,
) -> SummaryOptions:
    """The options of a summary.

    Args:
        groupings: Tags joined by commas, for example "level" or "format,level".
        aced_kept: See ``SummaryOptions.aced_kept``.
        seed: The seed of resampled intervals.
        model_groups: MODEL=GROUP for each model that has a group. With any, the figures are also by group.

    Raises:
        typer.Exit: 2 with a message: one is not MODEL=GROUP.
    """
    by_model = dict(map(_model_group, model_groups or ()))
    if by_model and not any("model_group" in name.split(",") for name in groupings or ()):
        groupings = [*(groupings or ()), "model_group"]
    found = (TagGrouping(tags=[tag for tag in name.split(",") if tag]) for name in groupings or ())
    return SummaryOptions(
        groupings=[grouping for grouping in found if grouping.tags],
        aced_kept=aced_kept,
        seed=seed,
        model_groups=by_model,
    )


def _model_group(text: str) -> tuple[str, str]:
    model, _, group = text.rpartition("=")
    if not model or not group:
        fail(f"--model-group {text!r} is not of the form MODEL=GROUP")
    return model, group


async def summarize_results(
    target: str | None, results: Path, options: SummaryOptions, *, mapped: bool = True
) -> Summary:
    """The summary of results. Ends the command if they cannot be read, or if the gateway fails.

    Args:
        target: The address of the gateway. None: one is started for the call.
        results: A folder of "dramaturg eval", or its results.jsonl.
        options: Groups and other choices.
        mapped: Whether clustered roles are placed on a map.
    """
    roles = _services(results) if mapped and target is None else _ROLES
    async with gateway(target, roles, quiet=True) as address, DramaturgClient(address) as client:
        try:
            return await client.summarize(read_results(results), options)
        except LineError as error:
            fail(str(error))
        except OSError as error:
            fail(f"{error.filename or results}: {error.strerror or error}")
        except ServiceError as error:
            fail(f"{target or 'the gateway'}: {error.code.name}: {error.message}", code=1)


def _services(results: Path) -> Sequence[str]:
    """The roles that compute the figures of results; that of roles places clustered ones on a map."""
    try:
        first = list(islice(read_results(results), _FIRST_SAMPLES))
    except (LineError, OSError):
        return _ROLES  # the summary reports it
    clustered = any(one.pair.roles.HasField("clustering") for one in first)
    return (*_ROLES, "roles") if clustered else _ROLES


def show_summary(console: Terminal, summary: Summary) -> None:
    """Prints the sections of a summary."""
    print_sections(console, sections(summary))


def as_json(message: Message) -> dict[str, Any]:
    """A message as JSON with the names of the contract. An absent value is null; numbers are numbers.

    Unlike protobuf's JSON, 64-bit integers are no strings, and fields without a value are not left out.
    """
    found: dict[str, Any] = {}
    fields: Sequence[Any] = message.DESCRIPTOR.fields
    for field in fields:
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"].message_type
            found[field.name] = {
                str(key): as_json(value[key]) if inner is not None else value[key] for key in sorted(value)
            }
        elif field.is_repeated:
            found[field.name] = [_value(field, one) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            if field.containing_oneof is None or field.containing_oneof.name.startswith("_"):
                found[field.name] = None
        else:
            found[field.name] = _value(field, value)
    return found


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_json(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def print_failures(console: Terminal, samples: Iterable[RunSample]) -> None:
    """Prints the worst failures, each on one line. Nothing where nothing failed."""
    if not (found := worst_failures(samples)):
        return
    console.print("the worst failures:", style="bold")
    for one in found:
        who = f" {one.candidate}" if one.candidate else ""
        reason = f": {_line(one.reason)}" if one.reason else ""
        line = f"  {one.sample}{who}: {one.failed} of {one.decided} failed, {one.measure}{reason}"
        console.print(line, soft_wrap=True)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else f"{line[: _REASON_LENGTH - 1]}…"
