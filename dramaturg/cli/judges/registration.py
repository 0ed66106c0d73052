"""``dramaturg judges register``, ``update`` and ``remove``: judges that a running gateway keeps."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge, JudgeRegistration, VersionPolicy
from dramaturg.cli.judges.listing import describe, show
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
Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="The address of the judge.")]
NewAddress = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The address of the judge.")]
Version = Annotated[
    str | None,
    typer.Option(
        "--expect-version", metavar="RANGE", help='The expected version, e.g. "1.4.2" or ">=1.4,<2".'
    ),
]
PolicyOption = Annotated[
    Policy | None,
    typer.Option("--version-policy", help="The reaction of a run to another version, or to a change."),
]
Tls = Annotated[bool | None, typer.Option("--tls/--no-tls", help="Encrypt the connection.")]
CaFile = Annotated[
    str | None, typer.Option(metavar="NAME", help="File on the gateway: the authorities of the judge.")
]
CertificateFile = Annotated[
    str | None, typer.Option(metavar="NAME", help="File on the gateway: the certificate that it presents.")
]
PrivateKeyFile = Annotated[
    str | None, typer.Option(metavar="NAME", help="File on the gateway: the key of that certificate.")
]
ServerName = Annotated[
    str | None, typer.Option(help="The name in the judge's certificate, if it is not the host.")
]
TokenFile = Annotated[str | None, typer.Option(metavar="NAME", help="File on the gateway: the token.")]
TokenHeader = Annotated[str | None, typer.Option(help="The metadata key of the token.")]
Timeout = Annotated[float | None, typer.Option("--timeout", min=0.001, help="The timeout, in seconds.")]
Calls = Annotated[int | None, typer.Option("--max-concurrent-calls", min=1, help="Most concurrent calls.")]
Owner = Annotated[str | None, typer.Option(help="Who runs the judge.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label; repeatable.")
]


@app.command("register")
def register(
    judge: Name,
    address: Address,
    expect_version: Version = None,
    version_policy: PolicyOption = None,
    tls: Tls = None,
    ca_file: CaFile = None,
    certificate_file: CertificateFile = None,
    private_key_file: PrivateKeyFile = None,
    server_name: ServerName = None,
    token_file: TokenFile = None,
    token_header: TokenHeader = None,
    timeout: Timeout = None,
    max_concurrent_calls: Calls = None,
    owner: Owner = None,
    label: Labels = None,
    target: RunTarget = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Registers a judge for your tenant at a running gateway, and shows its health.

    The gateway permits the addresses of its setting judge_targets. Files are names in its folder of
    credentials.

    For example:

        dramaturg judges register critic=theirs judge.partner.example:443 --tls --expect-version ">=1.4,<2"
    """
    registration, _ = _registration(judge, target=address, **_given(locals()))
    _show(target, lambda client: client.register_judge(registration), as_json=as_json)


@app.command("update")
def update(
    judge: Name,
    address: NewAddress = None,
    expect_version: Version = None,
    version_policy: PolicyOption = None,
    tls: Tls = None,
    ca_file: CaFile = None,
    certificate_file: CertificateFile = None,
    private_key_file: PrivateKeyFile = None,
    server_name: ServerName = None,
    token_file: TokenFile = None,
    token_header: TokenHeader = None,
    timeout: Timeout = None,
    max_concurrent_calls: Calls = None,
    owner: Owner = None,
    label: Labels = None,
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
    registration, fields = _registration(judge, target=address, **_given(locals()))
    paths = [*fields, *(clear or ())]
    if not paths:
        fail("nothing to change: name an option")
    _show(target, lambda client: client.update_judge(registration, paths), as_json=as_json)


@app.command("remove")
def remove(judge: Name, target: RunTarget = DEFAULT_TARGET) -> None:
    """Removes a judge that was registered."""
    role, name = _parse(judge, "ROLE=NAME")

    async def work(client: DramaturgClient) -> None:
        await client.remove_judge(role, name)

    _ask(target, work)


_OPTIONS = (
    "expect_version",
    "version_policy",
    "tls",
    "ca_file",
    "certificate_file",
    "private_key_file",
    "server_name",
    "token_file",
    "token_header",
    "timeout",
    "max_concurrent_calls",
    "owner",
    "label",
)
_CONNECTION = frozenset(_OPTIONS[2:9])


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in _OPTIONS}


def _registration(
    judge: str, *, target: str | None, **options: Any
) -> tuple[JudgeRegistration, Sequence[str]]:
    """The registration of the options, and the paths of the fields that they set."""
    role, name = _parse(judge, "ROLE=NAME")
    made = JudgeRegistration(role=role, name=name)
    paths = []
    for option, value in {"target": target, **options}.items():
        if value is None:
            continue
        if option in _CONNECTION:
            setattr(made.connection, option, value)
            paths.append(f"connection.{option}")
        elif option == "timeout":
            made.timeout.FromNanoseconds(round(value * 1e9))
            paths.append("timeout")
        elif option == "label":
            made.labels.update(_parse(label, "KEY=VALUE") for label in value)
            paths.append("labels")
        elif option == "version_policy":
            made.version_policy = VersionPolicy.Value(f"VERSION_POLICY_{value.upper()}")
            paths.append(option)
        else:
            field = {"expect_version": "expected_version"}.get(option, option)
            setattr(made, field, value)
            paths.append(field)
    return made, paths


def _parse(text: str, form: str) -> tuple[str, str]:
    left, separator, right = text.partition("=")
    if not (left and separator and right):
        fail(f"{text!r} is not of the form {form}")
    return left, right


def _show(target: str, work: Callable[[DramaturgClient], Awaitable[Judge]], *, as_json: bool) -> None:
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
