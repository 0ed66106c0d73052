"""``dramaturg conformance``: checks that a judge keeps its contract."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from dramaturg import conformance as kit
from dramaturg.cli.options import AsJson
from dramaturg.cli.terminal import Terminal

app = typer.Typer()


@app.command("conformance")
def conformance(
    role: Annotated[
        str, typer.Argument(help="The role of the judge; judge: a judge of texts, for any role.")
    ],
    target: Annotated[str, typer.Option(help="Address of the judge, HOST:PORT.")],
    criteria: Annotated[
        list[str] | None,
        typer.Option("--criterion", help="A criterion of a role that is not built in. Repeatable."),
    ] = None,
    model: Annotated[str, typer.Option(help="The model requested from the judge.")] = "",
    timeout: Annotated[float, typer.Option(help="Timeout of one answer, in seconds.")] = 60.0,
    as_json: AsJson = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Writes a JUnit XML file, a test case for each check.")
    ] = None,
) -> None:
    """Checks a running judge against its contract. Exit code 1: a requirement is broken.

    Each failure names the requirement, what was seen, and how to mend it.

    Examples:
        dramaturg conformance critic --target localhost:50099

        dramaturg conformance judge --criterion polite --target localhost:50099 --junit conformance.xml
    """
    try:
        checked = kit.checked_role(role, criteria or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ROLE") from error
    console = Terminal(stderr=as_json)

    def show(outcome: kit.Outcome) -> None:
        mark = ("holds", "green") if outcome.passed else ("broken", "red")
        console.print(Text.assemble(mark, f"  {outcome.check.requirement}"))
        if not outcome.passed:
            console.print(Text(f"        {outcome.failure}", style="red"))
            console.print(Text(f"        To mend it: {outcome.check.mend}"))

    outcomes = asyncio.run(kit.run(checked, target, model=model, timeout=timeout, on_outcome=show))
    broken = sum(not outcome.passed for outcome in outcomes)
    console.print(f"{len(outcomes) - broken} of {len(outcomes)} requirements hold")
    if junit:
        junit.write_text(kit.junit_xml(role, target, outcomes), encoding="utf-8")
    if as_json:
        checks = [
            {
                "name": one.check.name,
                "requirement": one.check.requirement,
                "passed": one.passed,
                "failure": one.failure,
                "mend": "" if one.passed else one.check.mend,
                "seconds": round(one.seconds, 3),
            }
            for one in outcomes
        ]
        print(json.dumps({"role": role, "target": target, "broken": broken, "checks": checks}))  # noqa: T201
    raise typer.Exit(1 if broken else 0)
