"""``dramaturg judges register``, ``update``, ``remove``, ``monitor``: judges that a running gateway keeps."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge, JudgeRegistration
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import DriftPolicy, JudgeMonitor
from dramaturg.cli.fields import Setting, check_fields, parse_settings, set_fields
from dramaturg.cli.judges.listing import describe, show
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail, run
from dramaturg.cli.runs.connection import DEFAULT_TARGET, REFUSALS, RunTarget
from dramaturg.cli.terminal import tell_next
from dramaturg.client import DramaturgClient, ServiceError

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
