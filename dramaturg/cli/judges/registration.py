"""``dramaturg judges register``, ``update`` and ``remove``: judges that a running gateway keeps."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge, JudgeRegistration, VersionPolicy
from dramaturg.cli.judges.listing import describe, show
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail, run
from dramaturg.cli.runs.connection import DEFAULT_TARGET, REFUSALS, RunTarget
from dramaturg.client import DramaturgClient, ServiceError

app = typer.Typer()


class Policy(StrEnum):
    """The reaction of a run to a judge of another version."""

    FAIL = "fail"
    PAUSE = "pause"
    WARN = "warn"


Name = Annotated[str, typer.Argument(metavar="ROLE=NAME", help="The role and the name of the judge.")]


@dataclass(frozen=True)
class Description:
    """What people are told of a judge or panel."""

    owner: Annotated[str | None, typer.Option(help="Who runs the judge.")] = None
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label; repeatable.")
    ] = None


@dataclass(frozen=True)
class Settings(Description):
    """The settings of a judge. Fields that are None are not set."""

    expect_version: Annotated[
        str | None, typer.Option(metavar="RANGE", help='The expected version, e.g. "1.4.2" or ">=1.4,<2".')
    ] = None
    version_policy: Annotated[
        Policy | None, typer.Option(help="The reaction of a run to another version, or to a change.")
    ] = None
    tls: Annotated[bool | None, typer.Option("--tls/--no-tls", help="Encrypt the connection.")] = None
    ca_file: Annotated[
        str | None, typer.Option(metavar="NAME", help="File on the gateway: the authorities of the judge.")
    ] = None
    certificate_file: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="File on the gateway: the certificate that it presents."),
    ] = None
    private_key_file: Annotated[
        str | None, typer.Option(metavar="NAME", help="File on the gateway: the key of that certificate.")
    ] = None
    server_name: Annotated[
        str | None, typer.Option(help="The name in the judge's certificate, if it is not the host.")
    ] = None
    token_file: Annotated[
        str | None, typer.Option(metavar="NAME", help="File on the gateway: the token.")
    ] = None
    token_header: Annotated[str | None, typer.Option(help="The metadata key of the token.")] = None
    timeout: Annotated[float | None, typer.Option(min=0.001, help="The timeout, in seconds.")] = None
    max_concurrent_calls: Annotated[int | None, typer.Option(min=1, help="Most concurrent calls.")] = None
    retry_attempts: Annotated[
        int | None, typer.Option(min=2, max=10, help="Most attempts at a call that fails.")
    ] = None
    retry_code: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="A status after which a call is repeated; repeatable."),
    ] = None
    shadow_of: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Shadow this judge or panel of the role, see docs/operate/judges.md."
        ),
    ] = None
    shadow_model: Annotated[str | None, typer.Option(help="The model that it uses as a shadow.")] = None
    shadow_queue_size: Annotated[
        int | None, typer.Option(min=1, help="The most candidates that wait for it as a shadow.")
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


@app.command("remove")
def remove(judge: Name, target: RunTarget = DEFAULT_TARGET) -> None:
    """Removes a judge that was registered."""
    role, name = _parse(judge, "ROLE=NAME")

    async def work(client: DramaturgClient) -> None:
        await client.remove_judge(role, name)

    _ask(target, work)


_PATHS = {
    "expect_version": "expected_version",
    **{
        name: f"connection.{name}"
        for name in ("tls", "ca_file", "certificate_file", "private_key_file", "server_name", "token_file")
    },
    "token_header": "connection.token_header",
    "retry_attempts": "retry.attempts",
    "retry_code": "retry.codes",
    "shadow_of": "shadow.of",
    "shadow_model": "shadow.model",
    "shadow_queue_size": "shadow.queue_size",
}
"""The fields of a registration that options set, where the names differ."""


def _registration(
    judge: str, address: str | None, settings: Settings
) -> tuple[JudgeRegistration, Sequence[str]]:
    """The registration of the options, and the paths of the fields that they set."""
    made = named(judge)
    paths = describe_registration(made, settings)
    values = {"target": address, **vars(settings)}
    for option, value in values.items():
        if value is None or option in {"owner", "label"}:
            continue
        path = _PATHS.get(option, option)
        paths.append(path)
        if option == "timeout":
            made.timeout.FromNanoseconds(round(value * 1e9))
        elif option == "version_policy":
            made.version_policy = VersionPolicy.Value(f"VERSION_POLICY_{value.upper()}")
        elif option == "retry_code":
            made.retry.codes.extend(value)
        else:
            parent, _, field = path.rpartition(".")
            setattr(getattr(made, parent) if parent else made, field, value)
    return made, paths


def named(judge: str) -> JudgeRegistration:
    """A registration of ROLE=NAME."""
    role, name = _parse(judge, "ROLE=NAME")
    return JudgeRegistration(role=role, name=name)


def describe_registration(made: JudgeRegistration, described: Description) -> list[str]:
    """Sets owner and labels; returns the paths of those that are given."""
    paths = []
    if described.owner is not None:
        made.owner = described.owner
        paths.append("owner")
    if described.label is not None:
        made.labels.update(_parse(label, "KEY=VALUE") for label in described.label)
        paths.append("labels")
    return paths


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
