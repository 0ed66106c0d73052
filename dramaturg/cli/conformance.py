"""``dramaturg conformance``: checks that a judge keeps its contract."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer
from rich.text import Text

from dramaturg import conformance as kit
from dramaturg.cli.options import AsJson
from dramaturg.cli.terminal import Terminal
from dramaturg.judge.roles import ROLES

app = typer.Typer()


@app.command("conformance")
def conformance(
    role: Annotated[str, typer.Argument(help="The role of the judge.")],
    target: Annotated[str, typer.Option(help="Address of the judge, HOST:PORT.")],
    model: Annotated[str, typer.Option(help="The model requested from the judge.")] = "",
    timeout: Annotated[float, typer.Option(help="Timeout of one answer, in seconds.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Checks a running judge against its contract. Exit code 1: a requirement is broken.

    Example: dramaturg conformance critic --target localhost:50099
    """
    if role not in kit.CHECKED_ROLES:
        names = ", ".join(kit.CHECKED_ROLES)
        raise typer.BadParameter(f"{role!r} has no checks; there are those of {names}", param_hint="ROLE")
    console = Terminal(stderr=as_json)

    def show(outcome: kit.Outcome) -> None:
        mark = ("holds", "green") if outcome.passed else ("broken", "red")
        console.print(Text.assemble(mark, f"  {outcome.check.requirement}"))
        if not outcome.passed:
            console.print(f"        {outcome.failure}", style="red")

    outcomes = asyncio.run(kit.run(ROLES[role], target, model=model, timeout=timeout, on_outcome=show))
    broken = sum(not outcome.passed for outcome in outcomes)
    console.print(f"{len(outcomes) - broken} of {len(outcomes)} requirements hold")
    if as_json:
        checks = [{"name": one.check.name, "passed": one.passed, "failure": one.failure} for one in outcomes]
        print(json.dumps({"role": role, "target": target, "broken": broken, "checks": checks}))  # noqa: T201
    raise typer.Exit(1 if broken else 0)
