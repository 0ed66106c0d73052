"""``dramaturg providers``: the model providers of a generation service, and whether they work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import tell_next
from dramaturg.client import ServiceError
from dramaturg.results.names import value_name
from dramaturg.run_client import answer
from dramaturg.tables.model import Table, columns

app = typer.Typer(invoke_without_command=True)

FEATURES: Sequence[pb.ProviderFeature.ValueType] = (
    pb.PROVIDER_FEATURE_TEXT,
    pb.PROVIDER_FEATURE_JSON_SCHEMA,
    pb.PROVIDER_FEATURE_JSON_OBJECT,
    pb.PROVIDER_FEATURE_LOGPROBS,
    pb.PROVIDER_FEATURE_LONG_PROMPT,
    pb.PROVIDER_FEATURE_REASONING,
    pb.PROVIDER_FEATURE_USAGE,
)
"""The features that a check tries."""
LIST_TIMEOUT = 60.0
SHOWN_MODELS = 20
"""The most models of a provider in the table; ``--json`` has all."""

GenerationTarget = Annotated[
    str | None,
    typer.Option(
        "--generation",
        metavar="HOST:PORT",
        help="Address of the generation service. Default: one in this process.",
    ),
]


@app.callback()
def providers(context: typer.Context, target: GenerationTarget = None, as_json: AsJson = False) -> None:
    """Lists the model providers and their models, and checks what works with them.

    A provider that cannot be reached is listed with its error; the exit code is then still 0.

    For example:

        dramaturg providers

        dramaturg providers check gpt-5-mini
    """
    if context.invoked_subcommand is not None:
        return
    listed = _run(_list(target), target)
    if as_json:
        typer.echo(json.dumps(_describe_list(listed), ensure_ascii=False))
        return
    table = Table("", columns("provider", texts=("models", "error"), figures=("count",)), heads=1)
    for one in listed.providers:
        more = len(one.models) - SHOWN_MODELS
        names = ", ".join(one.models[:SHOWN_MODELS]) + (f" and {more} more" if more > 0 else "")
        table.add_row(one.provider, names, one.error, str(len(one.models)), style="red" if one.error else "")
    print_tables(output(), table)
    if listed.providers:
        typer.echo(f"Default model: {listed.default_model or 'none'}")
        tell_next("providers", "check", listed.default_model or "MODEL")
    else:
        typer.echo(
            "No provider is configured: set MODEL, and OPENAI_API_KEY for the key of a provider, or "
            "OPENAI_BASE_URL for the address of a server; or name one in the file that "
            "DRAMATURG_CONFIG names."
        )


@app.command("check")
def check(
    model: Annotated[
        str, typer.Argument(metavar="[PROVIDER/]MODEL", help="The model. Default: the default model.")
    ] = "",
    target: GenerationTarget = None,
    connection_only: Annotated[
        bool, typer.Option("--connection", help="Check the address, the key and the model's name only.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="The most seconds for the whole check.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Checks what works with a provider and one of its models.

    It makes one small call for each feature: plain text, JSON held to a schema, JSON of any form,
    log-probabilities, a prompt of some 8,000 tokens, and reasoning; and it tells whether answers state
    token counts. With --connection it buys nothing.
    Exit code 1: something failed. A feature that the model answers without is no failure.

    For example:

        dramaturg providers check openai/gpt-oss-120b
    """
    features = () if connection_only else FEATURES
    checked = _run(check_provider(target, model, features, timeout), target)
    if as_json:
        typer.echo(json.dumps(_describe(checked), ensure_ascii=False))
    else:
        _print(checked)
    if any(found.status == pb.FEATURE_STATUS_FAILED for found in checked.features):
        raise typer.Exit(1)
    if not as_json:
        tell_next("eval", "FILE", "--judge-model", f"{checked.provider}/{checked.model}")


def _run(work: Any, target: str | None) -> Any:
    try:
        return run(work)
    except ServiceError as error:
        fail(f"{target or 'the generation service'}: {error.code.name}: {error.message}", code=1)


async def _list(target: str | None) -> pb.ListModelsResponse:
    async with service_channel("generation", target) as channel:
        stub = GenerationServiceStub(channel)
        return await answer(stub.ListModels(pb.ListModelsRequest(), timeout=LIST_TIMEOUT))


async def check_provider(
    target: str | None, model: str, features: Sequence[pb.ProviderFeature.ValueType], timeout: float
) -> pb.ProviderCheck:
    """Checks the connection to a model's provider, and features of the model.

    Args:
        target: The address of the generation service. None: one is started.
        model: The model. Empty: the default model.
        features: What is checked besides the connection.
        timeout: The most seconds for the check.

    Raises:
        ServiceError: The generation service does not answer, or no model can be chosen.
    """
    async with service_channel("generation", target) as channel:
        request = pb.CheckProviderRequest(model=model, features=features)
        return (await answer(GenerationServiceStub(channel).CheckProvider(request, timeout=timeout))).check


def _print(checked: pb.ProviderCheck) -> None:
    typer.echo(f"{checked.provider}/{checked.model} at {checked.address}")
    table = Table(
        "",
        columns("feature", texts=("status", "detail", "remedy"), figures=("seconds", "tokens/s", "cost USD")),
        heads=1,
    )
    for found in checked.features:
        usage = found.usage
        table.add_row(
            _feature(found),
            _status(found),
            found.detail,
            found.remedy,
            _figure(_seconds(found), "{:.2f}"),
            _figure(_pace(found), "{:.0f}"),
            _figure(usage.cost_usd if usage.HasField("cost_usd") else None, "{:.6f}"),
            style="red" if found.status == pb.FEATURE_STATUS_FAILED else "",
        )
    print_tables(output(), table)
    if checked.HasField("prompt_usd_per_million"):
        typer.echo(
            f"Price: {checked.prompt_usd_per_million:g} USD a million prompt tokens, "
            f"{checked.completion_usd_per_million:g} USD a million completion tokens: {checked.price_source}."
        )
    else:
        typer.echo("Price: not known; name a price table under `prices` in the provider's settings.")


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _feature(found: pb.FeatureCheck) -> str:
    return value_name(pb.ProviderFeature, found.feature).lower().replace("_", " ")


def _status(found: pb.FeatureCheck) -> str:
    return value_name(pb.FeatureStatus, found.status).lower().replace("_", " ")


def _seconds(found: pb.FeatureCheck) -> float | None:
    return found.latency.ToNanoseconds() / 1e9 or None


def _pace(found: pb.FeatureCheck) -> float | None:
    """Completion tokens a second. None: not known."""
    seconds = _seconds(found)
    tokens = found.usage.completion_token_count
    return tokens / seconds if seconds and tokens else None


def _describe_list(listed: pb.ListModelsResponse) -> dict[str, Any]:
    return {
        "default_model": listed.default_model,
        "providers": [
            {"provider": one.provider, "models": list(one.models), "error": one.error}
            for one in listed.providers
        ],
    }


def _describe(checked: pb.ProviderCheck) -> dict[str, Any]:
    priced = checked.HasField("prompt_usd_per_million")
    return {
        "provider": checked.provider,
        "model": checked.model,
        "address": checked.address,
        "prompt_usd_per_million": checked.prompt_usd_per_million if priced else None,
        "completion_usd_per_million": checked.completion_usd_per_million if priced else None,
        "price_source": checked.price_source,
        "features": [
            {
                "feature": _feature(found),
                "status": _status(found),
                "detail": found.detail,
                "remedy": found.remedy,
                "seconds": _seconds(found),
                "tokens_per_second": _pace(found),
                "cost_usd": found.usage.cost_usd if found.usage.HasField("cost_usd") else None,
                "omitted_parameters": list(found.omitted_parameters),
            }
            for found in checked.features
        ],
    }
