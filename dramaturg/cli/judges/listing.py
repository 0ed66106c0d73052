"""``dramaturg judges`` without a subcommand: the list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer
from google.protobuf.json_format import MessageToDict

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge, JudgeHealth, JudgePanel, PanelRule
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import JudgeMonitor
from dramaturg.api.generation.v1.generation_service_pb2 import FEATURE_STATUS_FAILED
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.platform import fail, gateway, output, run
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.report.certificate import certificate_outcome
from dramaturg.results.drift import monitor_text
from dramaturg.tables.model import Table, columns

TIMEOUT = 60.0
"""The most seconds that the gateway may take to ask all judges."""


def judges(context: typer.Context, target: Target = None, as_json: AsJson = False) -> None:
    """Lists the judges of a gateway with identity, health and model, registers and checks judges.

    The model is that of requests that name none. Whether its provider answers is checked without a paid call.
    A judge that does not answer is listed with its error; the exit code is 0.

    For example:

        dramaturg judges --target localhost:50051
    """
    if context.invoked_subcommand is not None:
        return
    try:
        listed = run(_list(target))
    except ServiceError as error:
        fail(f"{target or 'the gateway'}: {error.code.name}: {error.message}", code=1)
    if as_json:
        typer.echo(json.dumps({"judges": [describe(judge) for judge in listed]}, ensure_ascii=False))
    else:
        show(listed)
    tell_next("eval", "FILE", "--judge", "ROLE=NAME")


def show(listed: Sequence[Judge]) -> None:
    """Prints a table of judges, and the words of providers that fail below it."""
    print_tables(output(), _table(listed))
    for words in dict.fromkeys(filter(None, map(_model_error, listed))):
        echo(words)


async def _list(target: str | None) -> Sequence[Judge]:
    async with gateway(target) as address, DramaturgClient(address) as client:
        return await client.list_judges(model_checked=True, timeout=TIMEOUT)


def describe(judge: Judge) -> dict[str, Any]:
    """A judge as ``--json`` prints it."""
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
        "expected_version": judge.expected_version,
        "panel": _describe_panel(judge.panel) if judge.HasField("panel") else None,
        "shadow_of": judge.shadow.of or None,
        "registered": judge.HasField("registration"),
        "owner": judge.owner,
        "labels": dict(sorted(judge.labels.items())),
        "criteria": list(judge.identity.criteria),
        "capabilities": list(judge.identity.capabilities),
        "model": _model(judge) or None,
        "model_answers": _model_answers(judge),
        "model_error": _model_error(judge),
        "latency_seconds": judge.latency.ToNanoseconds() / 1e9,
        "certificate": _describe_certificate(judge) if judge.HasField("certificate") else None,
        "monitor": _describe_monitor(judge.monitor) if judge.HasField("monitor") else None,
    }


def _table(listed: Sequence[Judge]) -> Table:
    table = Table(
        "",
        columns(
            "role",
            "judge",
            texts=(
                *("default", "health", "model", "answers", "implementation", "target", "certificate"),
                *("drift", "error"),
            ),
        ),
        heads=2,
    )
    for judge in listed:
        health = _health(judge)
        table.add_row(
            judge.role,
            judge.name,
            f"shadow of {judge.shadow.of}"
            if judge.HasField("shadow")
            else ("yes" if judge.default_for_role else ""),
            health,
            _model(judge),
            {True: "yes", False: "no", None: ""}[_model_answers(judge)],
            # The version of a panel is made of what stands beside it.
            "" if judge.HasField("panel") else f"{judge.identity.name} {judge.identity.version}".strip(),
            _panel_text(judge.panel) if judge.HasField("panel") else judge.target,
            _certificate_text(judge),
            monitor_text(judge.monitor) if judge.HasField("monitor") else "",
            # The words of generation about a model are printed once, below the table.
            "" if judge.error and judge.model_error.endswith(judge.error) else judge.error,
            style="" if health == "SERVING" and _model_answers(judge) is not False else "red",
        )
    return table


def _describe_certificate(judge: Judge) -> dict[str, Any]:
    certificate = judge.certificate
    return {
        **MessageToDict(certificate, preserving_proto_field_name=True),
        "outcome": certificate_outcome(certificate),
        "changes": list(judge.certificate_changes),
        "stale": bool(judge.certificate_changes),
    }


def _describe_monitor(monitor: JudgeMonitor) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(monitor, preserving_proto_field_name=True)
    return found


def _certificate_text(judge: Judge) -> str:
    if not judge.HasField("certificate"):
        return ""
    certificate = judge.certificate
    text = f"{certificate_outcome(certificate)}; {certificate.measure_time.ToDatetime():%Y-%m-%d}"
    changes = judge.certificate_changes
    return f"{text}; stale: {', '.join(changes)}" if changes else text


def _describe_panel(panel: JudgePanel) -> dict[str, Any]:
    return {
        "rule": _rule(panel),
        "quorum": panel.quorum,
        "members": [
            {
                "judge": one.judge,
                "model": one.model,
                "weight": one.weight or 1,
                "threshold": one.threshold or None,
            }
            for one in panel.members
        ],
    }


def _panel_text(panel: JudgePanel) -> str:
    members = ", ".join(
        f"{one.judge}{f'@{one.model}' if one.model else ''}"
        + (f" x {one.weight:g}" if one.weight not in {0, 1} else "")
        + (f" from {one.threshold:g}" if one.threshold else "")
        for one in panel.members
    )
    return f"{_rule(panel)} of {members}" + (f"; quorum {panel.quorum}" if panel.quorum else "")


def _rule(panel: JudgePanel) -> str:
    return PanelRule.Name(panel.rule).removeprefix("PANEL_RULE_").lower().replace("_", "-")


def _model(judge: Judge) -> str:
    check = judge.model_check
    return f"{check.provider}/{check.model}" if judge.HasField("model_check") else ""


def _model_answers(judge: Judge) -> bool | None:
    """Whether the model of a judge answers. None: the judge calls none, or it was not checked."""
    if judge.model_error:
        return False
    if not judge.HasField("model_check"):
        return None
    return all(found.status != FEATURE_STATUS_FAILED for found in judge.model_check.features)


def _model_error(judge: Judge) -> str:
    """The words of a provider that fails, with the remedy. Empty: it answers, or is not known."""
    failed = (found for found in judge.model_check.features if found.status == FEATURE_STATUS_FAILED)
    words = next((f"{_model(judge)}: {found.detail}. {found.remedy}".strip() for found in failed), "")
    return words or judge.model_error


def _health(judge: Judge) -> str:
    return JudgeHealth.Name(judge.health).removeprefix("JUDGE_HEALTH_")
