"""``dramaturg judges``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge, JudgeHealth
from dramaturg.api.generation.v1.generation_service_pb2 import FEATURE_STATUS_OK
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.platform import fail, gateway, output, run
from dramaturg.cli.providers import check_provider
from dramaturg.cli.tables import Table, print_tables
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.judge.protocols import CALLS_MODELS

app = typer.Typer()

TIMEOUT = 60.0
"""The most seconds that the gateway may take to ask all judges."""


@app.command("judges")
def judges(
    target: Target = None,
    as_json: AsJson = False,
) -> None:
    """Lists the registered judges with identity and health.

    A judge that does not answer is listed with its error; the exit code is 0. Without --target the line below
    the table says which model judges use that name none, and whether its provider answers.

    For example:

        dramaturg judges --target localhost:50051
    """
    try:
        listed = run(_list(target))
    except ServiceError as error:
        fail(f"{target or 'the gateway'}: {error.code.name}: {error.message}", code=1)
    if as_json:
        typer.echo(json.dumps({"judges": [_describe(judge) for judge in listed]}, ensure_ascii=False))
    else:
        print_tables(output(), _table(listed))
        if target is None and any(CALLS_MODELS in judge.identity.capabilities for judge in listed):
            typer.echo(run(_default_model()))


async def _default_model() -> str:
    """The model of judges that name none, and whether its provider answers. Buys nothing."""
    try:
        checked = await check_provider(None, "", (), TIMEOUT)
    except ServiceError as error:
        return f"Model of the judges that call one: none: {error.message}"
    found = checked.features[0]
    state = "answers" if found.status == FEATURE_STATUS_OK else f"fails: {found.detail} {found.remedy}"
    return f"Model of the judges that call one: {checked.provider}/{checked.model}, whose provider {state}"


async def _list(target: str | None) -> Sequence[Judge]:
    async with gateway(target) as address, DramaturgClient(address) as client:
        return await client.list_judges(timeout=TIMEOUT)


def _describe(judge: Judge) -> dict[str, Any]:
    known = judge.HasField("identity")
    return {
        "role": judge.role,
        "name": judge.name,
        "target": judge.target,
        "default": judge.default_for_role,
        "health": _health(judge),
        "error": judge.error,
        "implementation": judge.identity.name if known else None,
        "version": judge.identity.version if known else None,
        "criteria": list(judge.identity.criteria),
        "capabilities": list(judge.identity.capabilities),
        "latency_seconds": judge.latency.ToNanoseconds() / 1e9,
    }


def _table(listed: Sequence[Judge]) -> Table:
    table = Table("role", "judge", texts=("default", "health", "implementation", "target", "error"))
    for judge in listed:
        health = _health(judge)
        table.add_row(
            judge.role,
            judge.name,
            "yes" if judge.default_for_role else "",
            health,
            f"{judge.identity.name} {judge.identity.version}".strip(),
            judge.target,
            judge.error,
            style="" if health == "SERVING" else "red",
        )
    return table


def _health(judge: Judge) -> str:
    return JudgeHealth.Name(judge.health).removeprefix("JUDGE_HEALTH_")
