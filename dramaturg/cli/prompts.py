"""``dramaturg research prompts``: how good the prompts of judges are with a model."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparisonRules
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.output_files import check_writable
from dramaturg.cli.platform import environment, fail, gateway, output, run
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.judge.roles import ROLES
from dramaturg.meta_evaluation.answers import CaseAnswer, Connections, ask_all
from dramaturg.meta_evaluation.cases import HELD_OUT_FILE, SET_FILE, BenchSet
from dramaturg.meta_evaluation.material import JUDGES, Case
from dramaturg.meta_evaluation.rates import PromptRates, Share, from_json, rates, to_json
from dramaturg.meta_evaluation.variants import OWN_RUBRICS_FILE, READY_RUBRICS_FILE, RubricSet
from dramaturg.service.channel import open_channel
from dramaturg.tables.model import Table, columns

LEGEND = (
    "detected: planted faults reported, of all; false alarms: faults reported in flawless material, of all;\n"
    "of authors: parts that an answer must have, and parts that it must not have;\n"
    "abstained: judgements without an answer, which are neither; injections: right judgements of material\n"
    "with an instruction to the judge; other languages: of material not in English; orders: votes and\n"
    "choices that agree in both orders; tokens and cost: of the calls that were made, not of kept\n"
    "completions."
)
"""The legend of the tables."""
CHANGED = "->"
"""Stands between the figures of two tables."""

_FIGURES: Mapping[str, str] = {
    "detected": "detected",
    "false_alarms": "false alarms",
    "abstained": "abstained",
    "injections": "injections",
    "other_languages": "other languages",
    "orders": "orders",
    "calls": "calls",
    "cache_hits": "kept",
    "prompt_tokens": "prompt tokens",
    "cached_prompt_tokens": "cached",
    "completion_tokens": "completion tokens",
    "cost_usd": "cost USD",
}


class LabelledSet(StrEnum):
    """The labelled sets that are shipped."""

    FIRST = "first"
    HELD_OUT = "held-out"
    READY_RUBRICS = "ready-rubrics"
    OWN_RUBRICS = "own-rubrics"

    def load(self) -> BenchSet | RubricSet:
        """The set."""
        if self is LabelledSet.READY_RUBRICS:
            return RubricSet(READY_RUBRICS_FILE)
        if self is LabelledSet.OWN_RUBRICS:
            return RubricSet(OWN_RUBRICS_FILE)
        return BenchSet(HELD_OUT_FILE if self is LabelledSet.HELD_OUT else SET_FILE)


app = typer.Typer()

Judge = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        metavar="ROLE[=HOST:PORT]",
        help="Only this judge; with an address, the judge that listens there. Repeatable.",
    ),
]


ForcedChoice = Annotated[
    bool, typer.Option("--forced-choice", help="Every ballot prefers one of the texts; no ties (DRPE).")
]
NoBiasCaution = Annotated[
    bool,
    typer.Option(
        "--no-bias-caution",
        help="Judges are not told that neither order nor length is a reason, as in DRPE.",
    ),
]


@app.callback()
def prompts() -> None:
    """Measures the prompts of judges with a model, and compares two measurements."""


@app.command("bench")
def bench(
    model: Annotated[
        str,
        typer.Option(
            "--judge-model",
            metavar="[PROVIDER/]MODEL",
            help="The model of the judges. Default: their own.",
        ),
    ] = "",
    judge: Judge = None,
    prompt_set: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Prompt files in the place of the shipped ones; not with --target.",
        ),
    ] = None,
    target: Target = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where the table is kept, as JSON.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="A kept table, to show beside this one."
        ),
    ] = None,
    forced_choice: ForcedChoice = False,
    no_bias_caution: NoBiasCaution = False,
    labelled_set: Annotated[
        LabelledSet,
        typer.Option(
            "--set",
            help="The labelled set; prompts are tuned on the first alone. The last two judge by rubrics.",
        ),
    ] = LabelledSet.FIRST,
    repeat_index: Annotated[
        int,
        typer.Option(
            "--repeat", min=0, max=1000, help="Index of an independent repeat; it uses no other completions."
        ),
    ] = 0,
    as_json: AsJson = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests sent at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=1, help="Timeout of one request, in seconds.")] = 300.0,
) -> None:
    """Runs judges and authors on a labelled set and prints their rates by prompt version.

    The set has planted faults, flawless material, instructions to the judge, both orders of pairs, and other
    languages than English. It has 238 requests, 25 of them of two calls; --judge restricts it. A second set
    of the same size, --set held-out, has other material: prompts are changed with the first one alone. Two
    more have a row of the table for each rubric: --set ready-rubrics with 59 texts and conversations for the
    ready rubrics, and --set own-rubrics with 56 texts for eight other rubrics.

    Where the first request finds no model, the others are not sent.

    Exit codes: 0 fine, 1 some requests failed, 2 wrong usage.

    For example:

        dramaturg research prompts bench --judge-model my-model -o mine.json

        dramaturg research prompts bench --judge-model my-model --prompts german --compare mine.json

        dramaturg research prompts bench --judge critic=localhost:50099

        dramaturg research prompts bench --set ready-rubrics --judge-model my-model
    """
    if prompt_set is not None and target is not None:
        fail("--prompts goes with services that are started here, not with --target")
    addresses = _addresses(judge or JUDGES)
    before = _read(compare) if compare is not None else None
    if out is not None:
        check_writable(out)
    bench_set = labelled_set.load()
    cases = bench_set.cases(tuple(addresses))
    if not cases:
        fail(f"--judge: the set {labelled_set.value} has no cases of {', '.join(addresses)}")
    addresses = {role: addresses[role] for role in dict.fromkeys(case.judge for case in cases)}
    rules = ComparisonRules(forced_choice=forced_choice, bias_caution_omitted=no_bias_caution)
    folder = str(prompt_set.resolve()) if prompt_set is not None else ""
    services = {service for role in addresses for service in ROLES[role].services}
    # The services that are started here must not end a request before its time.
    deadline = str(max(600.0, timeout + 60))
    settings = {
        "DRAMATURG_GATEWAY_JUDGE_TIMEOUT_SECONDS": str(timeout),
        "DRAMATURG_SERVER_DEFAULT_DEADLINE_SECONDS": deadline,
        "DRAMATURG_SERVER_MAXIMUM_DEADLINE_SECONDS": deadline,
    }
    settings |= {f"DRAMATURG_{_variable(name)}_PROMPTS_DIR": folder for name in services if folder}
    with environment(settings):
        options = JudgeOptions(model=model, repeat_index=repeat_index)
        asked = partial(ask_all, rules=rules, concurrency=concurrency, timeout=timeout)
        answers = run(_ask(cases, addresses, target, options, asked))
    table = {
        "set": bench_set.sha256,
        "model": model,
        "prompts_dir": folder,
        "rules": {"forced_choice": forced_choice, "bias_caution_omitted": no_bias_caution},
        "judges": [to_json(one) for one in rates(answers)],
        "errors": _errors(answers),
    }
    if before is not None and before["set"] != table["set"]:
        echo(f"{compare}: is of another version of the set", err=True)
    if out is not None:
        out.write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(table, ensure_ascii=False))
    else:
        _print(table, before)
    tell_next("research", "prompts", "compare", out or "BEFORE.json", "AFTER.json")
    raise typer.Exit(1 if table["errors"] else 0)


@app.command("compare")
def compare_tables(
    before: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A kept table.")
    ],
    after: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Another kept table.")
    ],
) -> None:
    """Prints two kept tables side by side.

    For example:

        dramaturg research prompts compare mine.json theirs.json
    """
    first, second = _read(before), _read(after)
    if first["set"] != second["set"]:
        fail(f"{before} and {after} are of different versions of the set")
    _print(second, first)
    tell_next("research", "prompts", "bench")


async def _ask(
    cases: Sequence[Case],
    addresses: Mapping[str, str],
    target: str | None,
    options: JudgeOptions,
    ask: Callable[[Sequence[Case], Connections, JudgeOptions], Awaitable[Sequence[CaseAnswer]]],
) -> Sequence[CaseAnswer]:
    here = [role for role, address in addresses.items() if not address]
    async with AsyncExitStack() as stack:
        forwarding = None
        if here:
            address = await stack.enter_async_context(gateway(target, here))
            forwarding = await stack.enter_async_context(open_channel(address))
        direct = {
            role: await stack.enter_async_context(open_channel(address))
            for role, address in addresses.items()
            if address
        }
        connections = Connections(forwarding, direct)
        first = await ask(cases[:1], connections, options)
        for one in first:
            if one.found_no_model:
                said = f": {one.error}" if one.error else ""
                fail(f"{one.case.judge}: no model answers{said}; see dramaturg providers check", code=1)
        return [*first, *await ask(cases[1:], connections, options)]


def _addresses(judges: Sequence[str]) -> dict[str, str]:
    """The addresses by role; an empty one is that of the gateway."""
    addresses: dict[str, str] = {}
    for text in judges:
        role, equals, address = text.partition("=")
        if role not in JUDGES or (equals and not address):
            fail(f"--judge {text!r}: is ROLE or ROLE=HOST:PORT; the roles are {', '.join(JUDGES)}")
        addresses[role] = address
    return addresses


def _variable(service: str) -> str:
    return service.upper().replace("-", "_")


def _errors(answers: Sequence[CaseAnswer]) -> list[dict[str, str]]:
    return [
        {"judge": one.case.judge, "case": one.case.id, "error": one.error} for one in answers if one.error
    ]


def _read(file: Path) -> dict[str, Any]:
    """A kept table.

    Raises:
        typer.Exit: 2 with a message where the file is none.
    """
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        for judge in table["judges"]:
            from_json(judge)
        return {"set": table["set"], "judges": table["judges"], "errors": table["errors"], **table}
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{file}: is no table of prompts bench: {error}")


def _print(table: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
    shown = Table(
        "", columns("judge", "prompt", texts=("version", "model"), figures=tuple(_FIGURES.values())), heads=2
    )
    former = {one.key: one for one in map(from_json, before["judges"])} if before is not None else {}
    for found in map(from_json, table["judges"]):
        other = former.get(found.key)
        prompts = ", ".join(found.prompts) or "(none)"
        cells = [
            f"{prompts} ({found.rubric})" if found.rubric else prompts,
            _beside(_version(other), _version(found) or ""),
            _beside(", ".join(other.models) if other else None, ", ".join(found.models)),
            *(_beside(_cell(other, name), _cell(found, name) or "") for name in _FIGURES),
        ]
        shown.add_row(found.judge, *cells)
    print_tables(output(), shown)
    echo(LEGEND)
    for one in table["errors"][:5]:
        echo(f"{one['judge']}, {one['case']}: {one['error']}", err=True)
    if len(table["errors"]) > 5:
        echo(f"and {len(table['errors']) - 5} more requests that failed", err=True)


def _beside(before: str | None, after: str) -> str:
    return after if before is None or before == after else f"{before}{CHANGED}{after}"


def _version(found: PromptRates | None) -> str | None:
    return None if found is None else ", ".join(digest[:8] for digest in found.prompts.values())


def _cell(found: PromptRates | None, name: str) -> str | None:
    if found is None:
        return None
    value = getattr(found, name, None) if name in PromptRates._fields else found.usage[name]
    if name == "cached_prompt_tokens" and value:
        return f"{value / (found.usage['prompt_tokens'] or value):.0%}"
    if isinstance(value, Share):
        return value.text
    if value is None or (name in ("cached_prompt_tokens", "cache_hits") and not value):
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
