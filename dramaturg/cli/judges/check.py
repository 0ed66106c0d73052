"""``dramaturg judges check``: checks that a server keeps its contract."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from dramaturg import conformance as kit
from dramaturg.cli.options import AsJson
from dramaturg.cli.terminal import Terminal, tell_next

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
        outcomes = asyncio.run(
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
