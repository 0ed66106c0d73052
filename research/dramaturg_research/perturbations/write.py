"""``dramaturg research perturb write``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.align.table import read_labels
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.output_files import check_writable, write_messages
from dramaturg.cli.platform import fail, gateway, run
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.meta_evaluation.categories import BY_MODEL, UNTOUCHED, Category
from dramaturg.meta_evaluation.rules import RULES
from dramaturg.service.channel import open_channel
from dramaturg.service.validation import violations
from dramaturg.summaries.labels import AmbiguousLabelsError
from dramaturg_research.perturbations.by_model import DELETE_CRUCIAL, Perturber
from dramaturg_research.perturbations.originals import Originals
from dramaturg_research.perturbations.variants import Skipped, Variant, by_rule, chosen_rules


def write(
    file: Annotated[
        str, typer.Argument(metavar="FILE.jsonl", help="Rows of the kind scripts; - reads standard input.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT.jsonl", help="The rows of the kind scripts to write.")
    ],
    category: Annotated[
        list[Category] | None, typer.Option(help="A category of faults; repeatable. Default: all.")
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help=f"A rule, of {', '.join(RULES)}; or {DELETE_CRUCIAL}, which asks a model; repeatable.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the rules.")] = 0,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="LABELS", help="Human labels: use only scripts that pass every criterion."),
    ] = None,
    by_model: Annotated[
        bool,
        typer.Option("--by-model", help="A model inserts the faults instead of rules. Implied by --model."),
    ] = False,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="The model that inserts the faults, or chooses the steps.")
    ] = "",
    keep_others: Annotated[
        bool,
        typer.Option(
            "--keep-others",
            help="Keep the row's other candidates, which are judged too.",
        ),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N rows.")] = None,
    target: Target = None,
    as_json: AsJson = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Calls of the model at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of one call, in seconds.")] = 300.0,
) -> None:
    """Writes each script unchanged and with each fault, as rows of the kind "scripts" (ABSEval, Table 4).

    FILE holds scripts without faults; with LABELS (see "research ablate") only those that pass every
    criterion are used. The tags "perturbation" and "operation" name the fault of a row, "none" for an
    unchanged script. OUT.changes.jsonl records every change. Evaluate OUT, then run "research perturb
    report".

    Exit codes: 0 fine, 1 the model failed for some, 2 wrong usage or rows.

    For example:

        dramaturg research perturb tasks.jsonl -o perturbed.jsonl --category missing-steps --seed 7

        dramaturg research perturb tasks.jsonl -o perturbed.jsonl --model my-model

        dramaturg research perturb tasks.jsonl -o perturbed.jsonl --operation delete-crucial --model my-model
    """
    if unknown := sorted(set(operation or ()) - {*RULES, DELETE_CRUCIAL}):
        fail(f"--operation {unknown[0]!r}: the rules are {', '.join([*RULES, DELETE_CRUCIAL])}")
    categories = list(dict.fromkeys(category or Category))
    takes_crucial = DELETE_CRUCIAL in (operation or ()) and Category.MISSING_STEPS in categories
    asks_model = by_model or bool(model)
    if asks_model and operation and not takes_crucial:
        fail(f"--operation names rules and excludes a model, except {DELETE_CRUCIAL}")
    if by_model and operation:
        fail("--by-model inserts all faults by a model and excludes --operation")
    rules = chosen_rules(categories, operation or ()) if operation or not asks_model else ()
    if not (rules or takes_crucial or asks_model):
        fail("--category and --operation have no rule in common")
    # What annotators are split on is no label that finds it right.
    people = None if labels is None else read_labels(labels, "more-than-half", "FAIL", target)
    with checked_rows(file, EvaluateScriptsRequest, limit) as (rows, _):
        try:
            originals = Originals.read(rows, people)
        except AmbiguousLabelsError as error:
            fail(str(error))
    if not originals.scripts:
        fail(f"{file}: there is no script that a fault can be put into")
    record = out.with_suffix(".changes.jsonl")
    check_writable(out, record)
    skipped = Skipped()
    others, vocabulary = originals.of_other_goals(), originals.vocabulary()
    faulty = [list(by_rule(one, rules, others, vocabulary, seed, skipped)) for one in originals.scripts]
    if takes_crucial:
        categories = [Category.MISSING_STEPS]
    if asks_model or takes_crucial:
        perturber = Perturber(model, concurrency, timeout, DELETE_CRUCIAL if takes_crucial else BY_MODEL)
        by_the_model = run(_perturb(target, perturber, originals, categories, skipped))
        faulty = [[*made, *more] for made, more in zip(faulty, by_the_model, strict=True)]
    variants = [
        variant
        for original, made in zip(originals.scripts, faulty, strict=True)
        for variant in (Variant(original, original.steps), *made)
    ]
    _write(out, record, variants, seed, keep_others=keep_others)
    counts = Counter(one.perturbation.operation or UNTOUCHED for one in variants)
    summary = {
        "scripts": len(originals.scripts),
        "left_out": dict(originals.left_out),
        "rows": len(variants),
        "by_category": dict(Counter(one.category or UNTOUCHED for one in variants)),
        "by_operation": dict(counts),
        "skipped": skipped.summary(),
        "seed": seed,
        "out": str(out),
        "changes": str(record),
    }
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items() if name != UNTOUCHED)
        echo(f"{counts[UNTOUCHED]} scripts untouched, {listed or 'no fault'} to {out}; changes in {record}")
    for why, count in originals.left_out.items():
        echo(f"left out: {count} candidates, {why}", err=True)
    for name, reasons in skipped.counts.items():
        for why, count in reasons.items():
            echo(f"not made: {count} {name}, {why}", err=True)
    failed = any(name.startswith((f"{BY_MODEL}/", f"{DELETE_CRUCIAL}/")) for name in skipped.counts)
    tell_next("eval", out)
    raise typer.Exit(1 if failed else 0)


async def _perturb(
    target: str | None,
    perturber: Perturber,
    originals: Originals,
    categories: Sequence[Category],
    skipped: Skipped,
) -> list[list[Variant]]:
    async with gateway(target, ["author"]) as address, open_channel(address) as channel:
        return await perturber.perturb(channel, originals.scripts, categories, skipped)


def _write(out: Path, record: Path, variants: Sequence[Variant], seed: int, *, keep_others: bool) -> None:
    rows = [variant.row(keep_others=keep_others) for variant in variants]
    for variant, row in zip(variants, rows, strict=True):
        if broken := violations(row):
            fail(f"line {variant.original.line} cannot be tagged: {broken[0].field} {broken[0].description}")
    write_messages(out, rows)
    records = [
        json.dumps(variant.record(line, seed), ensure_ascii=False) + "\n"
        for line, variant in enumerate(variants, start=1)
        if variant.category is not None
    ]
    try:
        record.write_text("".join(records), encoding="utf-8")
    except OSError as error:
        fail(f"{record}: {error.strerror or error}")
