"""``dramaturg judges check`` and ``certify``: the contract of a server, a certificate of a judge."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer
from rich.text import Text

from dramaturg import conformance as kit
from dramaturg.api.alignment.v1.agreement_pb2 import MeasureAgreementRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge as RegisteredJudge
from dramaturg.cli.align.options import call_alignment
from dramaturg.cli.align.preferences import JudgeFamily, read_pairs
from dramaturg.cli.align.table import Epsilon, Judge, Rows, add_annotations, group_column
from dramaturg.cli.judges.registration import TIMEOUT
from dramaturg.cli.options import AsJson, RunTarget
from dramaturg.cli.platform import fail, run
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import Terminal, echo, tell_next
from dramaturg.client import DEFAULT_TARGET, DramaturgClient, ServiceError
from dramaturg.report.certificate import certificate_page
from dramaturg.results.equivalence import ERROR
from dramaturg.tables.model import Table, columns

app = typer.Typer()
_SERVER = typer.Argument(
    metavar="HOST:PORT|COMMAND...",
    help="The address of the server, or the command that starts it; {port} in it, PORT and "
    "DRAMATURG_SERVER_PORT are the port. -- stands before a command with options.",
)
Server = Annotated[list[str], _SERVER]
OptionalServer = Annotated[list[str] | None, _SERVER]
_ADDRESS = re.compile(r"\S*:[0-9]+|[a-z]+:/\S+")


def address_or_command(server: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The address that the words of ``Server`` are, or the words of a command; the other is empty."""
    if len(server) == 1:
        (word,) = server
        return (word, []) if _ADDRESS.fullmatch(word) else ("", shlex.split(word))
    return "", server


@app.command("check")
def check_server(
    role: Annotated[
        str,
        typer.Argument(
            help="The role of the server. judge: a judge of texts, for any role. generation, embedding."
        ),
    ],
    server: Server,
    criteria: Annotated[
        list[str] | None,
        typer.Option("--criterion", help="A criterion of a role that is not built in. Repeatable."),
    ] = None,
    model: Annotated[
        str, typer.Option("--judge-model", metavar="MODEL", help="The model requested from the judge.")
    ] = "",
    timeout: Annotated[float, typer.Option(help="Timeout of one answer, in seconds.")] = 60.0,
    burst: Annotated[
        int, typer.Option(min=1, max=10_000, help="Calls at once of the check of overload.")
    ] = kit.BURST,
    as_json: AsJson = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Writes a JUnit XML file, a test case for each check.")
    ] = None,
) -> None:
    """Checks a server against its contract. Exit code 1: a requirement is broken.

    Each failure names the requirement, what was seen, and the remedy. Of a server that a command starts the
    end is checked too. What a judge misses and what misleads it: dramaturg judges certify.

    For example:

        dramaturg judges check critic localhost:50099

        dramaturg judges check critic -- python judge.py --port {port}

        dramaturg judges check judge localhost:50099 --criterion polite --junit conformance.xml
    """
    try:
        checked = kit.checked_role(role, criteria or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ROLE") from error
    target, command = address_or_command(server)
    console = Terminal(stderr=as_json)

    def show(outcome: kit.Outcome) -> None:
        mark = ("holds", "green") if outcome.passed else ("broken", "red")
        if outcome.skipped:
            mark = ("SKIPPED", "yellow")
        console.print(Text.assemble(mark, f"  {outcome.check.requirement}"))
        if outcome.skipped:
            console.print(Text(f"        {outcome.skipped}"))
        if outcome.broken:
            console.print(Text(f"        {outcome.failure}", style="red"))
            console.print(Text(f"        Remedy: {outcome.check.remedy}"))

    try:
        outcomes = run(
            kit.run(
                checked,
                target,
                command=command,
                model=model,
                timeout=timeout,
                burst=burst,
                on_outcome=show,
            )
        )
    except kit.StartError as error:
        raise typer.BadParameter(str(error), param_hint="HOST:PORT" if target else "COMMAND") from error
    broken, skipped = sum(one.broken for one in outcomes), sum(bool(one.skipped) for one in outcomes)
    tried = len(outcomes) - skipped
    console.print(f"{tried - broken} of {tried} requirements hold, {skipped} are not tried")
    reached = target or shlex.join(command)
    if junit:
        junit.write_text(kit.junit_xml(role, reached, outcomes), encoding="utf-8")
    if as_json:
        checks = [
            {
                "name": one.check.name,
                "requirement": one.check.requirement,
                "passed": one.passed,
                "failure": one.failure,
                "skipped": one.skipped,
                "remedy": one.check.remedy if one.broken else "",
                "seconds": round(one.seconds, 3),
            }
            for one in outcomes
        ]
        whole = {"role": role, "server": reached, "broken": broken, "checks": checks}
        print(json.dumps(whole))  # noqa: T201
    if target and not broken and role not in {"generation", "embedding"}:
        tell_next("judges", "register", "ROLE=NAME" if role == "judge" else f"{role}=NAME", target)
    raise typer.Exit(1 if broken else 0)


@app.command("certify")
def certify_judge(
    role: Annotated[
        str,
        typer.Argument(
            metavar="ROLE[=NAME]",
            help="The role of the judge. judge: a judge of texts, for any role. With a name: the judge or "
            "panel that a gateway lists by it.",
        ),
    ],
    server: OptionalServer = None,
    target: RunTarget = DEFAULT_TARGET,
    model: Annotated[
        str, typer.Option("--judge-model", metavar="MODEL", help="The model requested from the judge.")
    ] = "",
    timeout: Annotated[float, typer.Option(help="Timeout of one answer, in seconds.")] = 60.0,
    tolerances: Annotated[
        list[str] | None,
        typer.Option(
            "--tolerance", metavar="PROPERTY=SHARE", help="The tolerance of a property, e.g. injection=0.05."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Labels of people and of the judge, as those of `labels align labels`. Tests whether the "
            "judge, which --judge names, may take the place of people.",
        ),
    ] = None,
    judge: Judge = "",
    epsilon: Epsilon = 0.2,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Pairs that the judge and people judged, as those of `labels align bias`. Tests whether the "
            "judge prefers texts of its own model family, which --judge-family names.",
        ),
    ] = None,
    judge_family: JudgeFamily = "",
    stale: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            exists=True,
            dir_okay=False,
            help="Certifies nothing, and says by one request what is different now from that certificate. "
            "Exit code 1: it is stale.",
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE.html", dir_okay=False, help="Writes an HTML page.")
    ] = None,
    store: Annotated[
        bool,
        typer.Option(help="Store the certificate of a judge by name in the gateway, which `judges` shows."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Tests a judge's errors and biases within tolerances. Exit code 1: a property is outside.

    Measures planted faults, false alarms, position, verbosity, authority, bandwagon, formatting, injection,
    other languages and repeatability, and with --pairs self-preference. Each is an equivalence test: within,
    outside or not shown. The judge answers 60 to 1,000 requests.

    For example:

        dramaturg judges certify critic localhost:50099 --page critic.html

        dramaturg judges certify critic=theirs --target localhost:50051

        dramaturg judges certify critic=trio --target localhost:50051

        dramaturg judges certify critic localhost:50099 --labels labels.csv --judge gpt

        dramaturg judges certify critic localhost:50099 --pairs pairs.jsonl --judge-family llama

        dramaturg judges certify critic localhost:50099 --stale critic.json
    """
    if (labels is None) == bool(judge):
        raise typer.BadParameter("--labels and --judge go together", param_hint="--labels")
    if (pairs is None) == bool(judge_family):
        raise typer.BadParameter("--pairs and --judge-family go together", param_hint="--pairs")
    stated = role
    role, separator, name = role.partition("=")
    if bool(server) == bool(separator):
        raise typer.BadParameter(
            "name a judge of the gateway as ROLE=NAME, or give ROLE and its address or command",
            param_hint="ROLE",
        )
    address, command = address_or_command(server or [])
    panel = None
    if separator:
        entry = run(_registered(target, role, name))
        panel = entry if entry.HasField("panel") else None
        address = target if panel else entry.target
        # Further roles of a gateway are those of judges of texts.
        role = role if role in kit.CHECKED_ROLES else kit.JUDGE
    try:
        checked = kit.checked_role(role)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ROLE") from error
    tolerated = _tolerances(tolerances or ())
    earlier = _earlier(stale) if stale else None
    tested = []
    if pairs and not stale:
        tested.append(_self_preference(pairs, judge_family, tolerated))
    if labels and not stale:
        tested.append(_replacement(labels, judge, epsilon))
    try:
        if earlier is not None:
            changes = run(
                kit.changes_since(
                    earlier, checked, address, command=command, model=model, timeout=timeout, panel=panel
                )
            )
            echo(json.dumps({"changes": changes}) if as_json else _told(changes))
            raise typer.Exit(1 if changes else 0)
        certificate = run(
            kit.certify(
                checked,
                address,
                command=command,
                model=model,
                timeout=timeout,
                tolerances=tolerated,
                panel=panel,
            )
        )
    except kit.StartError as error:
        raise typer.BadParameter(str(error), param_hint="HOST:PORT" if address else "COMMAND") from error
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ROLE") from error
    except grpc.aio.AioRpcError as error:
        fail(f"{address or shlex.join(command)}: {error.code().name}: {error.details()}")
    known = {one.name: one for one in (*certificate.properties, *tested)}
    certificate = replace(certificate, properties=list(known.values()))
    if page:
        page.write_text(certificate_page(certificate.to_json()), encoding="utf-8")
    if as_json:
        print(json.dumps(certificate.to_json()))  # noqa: T201
    else:
        failed = [f"{len(certificate.errors)} requests failed"] if certificate.errors else []
        print_tables(Terminal(), _table(certificate), *failed)
    if separator and store:
        run(_store(target, stated, certificate))
    tell_next("eval", "FILE", "--judge", stated if separator else f"{stated}=NAME")
    raise typer.Exit(1 if certificate.count(kit.OUTSIDE) else 0)


async def _registered(gateway: str, role: str, name: str) -> RegisteredJudge:
    """A judge or panel that a gateway lists."""
    try:
        async with DramaturgClient(gateway) as client:
            listed = await client.list_judges(timeout=TIMEOUT)
    except ServiceError as error:
        fail(f"{gateway}: {error.code.name}: {error.message}", 1)
    by_name = {f"{one.role}={one.name}": one for one in listed}
    found = by_name.get(f"{role}={name}")
    if found is None:
        known = ", ".join(sorted(by_name)) or "none"
        raise typer.BadParameter(f"{gateway} has no judge {role}={name}; it has {known}", param_hint="ROLE")
    return found


async def _store(gateway: str, judge: str, certificate: kit.Certificate) -> None:
    """Stores a certificate of a judge, named as "role=name"."""
    role, _, name = judge.partition("=")
    try:
        async with DramaturgClient(gateway) as client:
            await client.certify_judge(role, name, certificate.to_message(), timeout=TIMEOUT)
    except ServiceError as error:
        fail(f"{gateway} does not store the certificate: {error.code.name}: {error.message}", 1)


def _tolerances(written: Iterable[str]) -> Mapping[str, float]:
    found = {}
    for one in written:
        name, _, value = one.partition("=")
        try:
            found[name.strip()] = share = float(value)
        except ValueError:
            share = 0.0
        if name.strip() not in kit.TOLERANCES or not 0 < share < 1:
            raise typer.BadParameter(
                f"{one!r} is not PROPERTY=SHARE with a share between 0 and 1; the properties are "
                f"{', '.join(kit.TOLERANCES)}",
                param_hint="--tolerance",
            )
    return found


def _earlier(file: Path) -> Mapping[str, Any]:
    """A certificate that was written before."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"role", "name", "version", "models", "prompts"} <= found.keys():
        raise typer.BadParameter(f"{file.name} is no certificate as JSON", param_hint="--stale")
    return found


def _told(changes: Sequence[str]) -> str:
    return f"stale: {'; '.join(changes)}" if changes else "not stale"


def _self_preference(pairs: Path, family: str, tolerated: Mapping[str, float]) -> kit.Property:
    """The equivalence test of the preference for texts of a model family."""
    request = read_pairs(pairs, family, level=1 - 2 * ERROR)
    # The first group is all pairs together.
    found = call_alignment(None, lambda stub: stub.MeasurePairBias(request)).groups[0].own_family
    return kit.self_preference(found, {**kit.TOLERANCES, **tolerated}[kit.SELF_PREFERENCE])


def _replacement(labels: Path, judge: str, epsilon: float) -> kit.Property:
    """The alternative annotator test of an annotator (Calderon et al. 2025)."""
    rows = Rows.read(labels).one_label_a_row()
    # The labels of one item by several criteria depend on each other.
    request = MeasureAgreementRequest(
        group_tag=group_column(rows), cluster_tag="item", judge=judge, epsilon=epsilon
    )
    add_annotations(request, rows)
    # The first group is all items together.
    found = call_alignment(None, lambda stub: stub.MeasureAgreement(request)).groups[0].replacement
    if found.undefined:
        return kit.Property("replacement", found.undefined, kit.NOT_APPLICABLE, epsilon)
    return kit.Property(
        "replacement",
        f"people whose place {judge} may take, by the labels of {labels.name}",
        kit.MAY_REPLACE if found.passed else kit.NOT_SHOWN,
        epsilon,
        found.winning_rate,
        case_count=max(one.item_count for one in found.annotators),
    )


def _table(certificate: kit.Certificate) -> Table:
    title = f"{certificate.role}: {certificate.name} {certificate.version}"
    table = Table(
        title, columns("property", "conclusion", figures=("value", "from", "to", "tolerance", "cases"))
    )
    for one in certificate.properties:
        figures = (
            ("", "", "", "", "")
            if one.value is None
            else (
                f"{one.value:.3f}",
                "" if one.lower is None else f"{one.lower:.3f}",
                "" if one.upper is None else f"{one.upper:.3f}",
                f"{one.tolerance:g}",
                str(one.case_count),
            )
        )
        table.add_row(one.name, one.conclusion, *figures)
    return table
