"""``dramaturg judges``: the list, and judges that a running gateway keeps."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    Judge,
    JudgeHealth,
    JudgePanel,
    JudgeRegistration,
    PanelRule,
)
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import DriftPolicy, JudgeMonitor
from dramaturg.api.generation.v1.generation_service_pb2 import FEATURE_STATUS_FAILED
from dramaturg.cli.fields import Setting, check_fields, parse_settings, set_fields
from dramaturg.cli.options import AsJson, Target, takes_groups
from dramaturg.cli.platform import fail, gateway, output, run
from dramaturg.cli.runs.connection import DEFAULT_TARGET, REFUSALS, RunTarget
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.report.certificate import certificate_outcome
from dramaturg.results.drift import monitor_text
from dramaturg.results.names import value_name
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
    return value_name(PanelRule, panel.rule).lower().replace("_", "-")


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
    return value_name(JudgeHealth, judge.health)


app = typer.Typer()


class DriftChoice(StrEnum):
    """What a check does that finds drift."""

    WARN = "warn"
    QUARANTINE = "quarantine"
    PAUSE = "pause"


Name = Annotated[str, typer.Argument(metavar="ROLE=NAME", help="The role and the name of the judge.")]


@dataclass(frozen=True)
class Description:
    """What is registered of a judge or panel beside its address or its members."""

    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Set a field, as in owner=us, labels.team=a or retry.attempts=4; repeatable.",
        ),
    ] = None


@dataclass(frozen=True)
class Settings(Description):
    """The settings of a judge. Fields that are None are not set."""

    expect_version: Annotated[
        str | None, typer.Option(metavar="RANGE", help='The expected version, e.g. "1.4.2" or ">=1.4,<2".')
    ] = None
    tls: Annotated[bool | None, typer.Option("--tls/--no-tls", help="Encrypt the connection.")] = None
    shadow_of: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Shadow this judge or panel of the role, see docs/operate/judges.md."
        ),
    ] = None


@app.command("register")
@takes_groups
def register(
    judge: Name,
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The address of the judge.")],
    settings: Settings,
    target: RunTarget = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Registers a judge for your tenant at a running gateway, and shows its health.

    The gateway permits the addresses of its setting judge_targets. Files are names in its folder of
    credentials.

    For example:

        dramaturg judges register critic=theirs judge.partner.example:443 --tls --expect-version ">=1.4,<2"

        dramaturg judges register critic=next localhost:50099 --shadow-of llm
    """
    registration, _ = _registration(judge, address, settings)
    show_answer(target, lambda client: client.register_judge(registration), as_json=as_json)
    tell_next("eval", "FILE", "--judge", judge, "--target", target)


@app.command("update")
@takes_groups
def update(
    judge: Name,
    settings: Settings,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The address of the judge.")
    ] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="A field to clear, e.g. connection or labels; repeatable."),
    ] = None,
    target: RunTarget = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Changes a judge that was registered. What no option names stays as it is; labels are replaced together.

    For example:

        dramaturg judges update critic=theirs --expect-version 1.5.0 --clear connection
    """
    registration, fields = _registration(judge, address, settings)
    paths = [*fields, *(clear or ())]
    if not paths:
        fail("nothing to change: name an option")
    show_answer(target, lambda client: client.update_judge(registration, paths), as_json=as_json)
    tell_next("eval", "FILE", "--judge", judge, "--target", target)


@app.command("remove")
def remove(judge: Name, target: RunTarget = DEFAULT_TARGET) -> None:
    """Removes a judge that was registered."""
    role, name = _parse(judge, "ROLE=NAME")

    async def work(client: DramaturgClient) -> None:
        await client.remove_judge(role, name)

    _ask(target, work)
    tell_next("judges", "--target", target)


@app.command("monitor")
def monitor(
    judge: Name,
    run_id: Annotated[
        str, typer.Option("--run", metavar="RUN", help="The run whose candidates are judged again.")
    ] = "",
    hours: Annotated[
        float, typer.Option("--every", metavar="HOURS", min=0.1, max=8784, help="The time between checks.")
    ] = 24.0,
    policy: Annotated[
        DriftChoice, typer.Option("--on-drift", help="What a check does that finds drift.")
    ] = DriftChoice.WARN,
    end: Annotated[bool, typer.Option("--end", help="End the monitoring.")] = False,
    target: RunTarget = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Checks at intervals whether a judge still answers as it did in a run.

    The run asked the judge 2 to 7 times for each candidate (eval --repeats) and has ended. Each check
    evaluates it again. An unchanged judge is found to drift in at most 1 % of all years.

    For example:

        dramaturg judges monitor critic=theirs --run RUN --every 24 --on-drift quarantine
    """
    role, name = _parse(judge, "ROLE=NAME")
    if end == bool(run_id):
        raise typer.BadParameter("give one of --run and --end", param_hint="--run")
    made = None
    if not end:
        made = JudgeMonitor(run_id=run_id, drift_policy=DriftPolicy.Value(f"DRIFT_POLICY_{policy.name}"))
        made.interval.FromTimedelta(timedelta(hours=hours))
    show_answer(target, lambda client: client.monitor_judge(role, name, made), as_json=as_json)
    tell_next("judges", "--target", target)


_PATHS = {"expect_version": "expected_version", "tls": "connection.tls", "shadow_of": "shadow.of"}
"""The fields of a registration that options set."""


def _registration(
    judge: str, address: str | None, settings: Settings
) -> tuple[JudgeRegistration, Sequence[str]]:
    """The registration of the options, and the paths of the fields that they set."""
    made = named(judge)
    given = {path: getattr(settings, option) for option, path in _PATHS.items()}
    chosen = [
        Setting(path, str(value).lower() if isinstance(value, bool) else value)
        for path, value in {"target": address, **given}.items()
        if value is not None
    ]
    set_fields(made, chosen)
    return made, [*(one.path for one in chosen), *describe_registration(made, settings)]


def named(judge: str) -> JudgeRegistration:
    """A registration of ROLE=NAME."""
    role, name = _parse(judge, "ROLE=NAME")
    return JudgeRegistration(role=role, name=name)


def describe_registration(made: JudgeRegistration, described: Description) -> list[str]:
    """Sets the fields that --set names; returns their paths.

    Raises:
        typer.Exit: 2 with a message where a field does not exist, or its value is invalid.
    """
    try:
        settings = parse_settings(described.fields or ())
        check_fields(JudgeRegistration(), settings)
        set_fields(made, settings)
    except ValueError as error:
        fail(str(error))
    return list(dict.fromkeys("labels" if one.root == "labels" else one.path for one in settings))


def _parse(text: str, form: str) -> tuple[str, str]:
    left, separator, right = text.partition("=")
    if not (left and separator and right):
        fail(f"{text!r} is not of the form {form}")
    return left, right


def show_answer(target: str, work: Callable[[DramaturgClient], Awaitable[Judge]], *, as_json: bool) -> None:
    """Calls a gateway and prints the judge that it answers with."""
    judge = _ask(target, work)
    if as_json:
        typer.echo(json.dumps(describe(judge), ensure_ascii=False))
    else:
        show([judge])


def _ask(target: str, work: Callable[[DramaturgClient], Awaitable[Any]]) -> Any:
    async def connected() -> Any:
        async with DramaturgClient(target) as client:
            return await work(client)

    try:
        return run(connected())
    except ServiceError as error:
        lines = [f"{target}: {error.code.name}: {error.message}"]
        if len(error.violations) > 1:
            lines += [f"  {field}: {description}" for field, description in error.violations]
        fail("\n".join(lines), 2 if error.code in REFUSALS else 1)
