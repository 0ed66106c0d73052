"""``dramaturg research reproduce``: the tables and figures of a paper from its released data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionDemonstration
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest
from dramaturg.cli.align.table import MORE_THAN_HALF, read_labels
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.judge_selection import parse_models
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import MaxOutputTokens, ModelsUnderTest, Target
from dramaturg.cli.platform import INTERRUPTED, PARTIAL, environment, fail, gateway, output, run
from dramaturg.cli.runs.connection import MaxCost, MaxTokens, RunConcurrency, make_budget
from dramaturg.cli.runs.watch import EXIT_CODES, watch_run
from dramaturg.cli.summaries import NOT_KNOWN, DryRun, Pilot, print_estimate
from dramaturg.cli.terminal import echo
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.plots.figures import NO_PLOTS, can_draw
from dramaturg.results.quantities import counted, money
from dramaturg_research.reproduction.folder import INDEX, models_of, write_folder
from dramaturg_research.reproduction.paper import DataError, PaperName, Reproduction, find_paper
from dramaturg_research.reproduction.session import Estimate, RunStoppedError, Session

app = typer.Typer()

STORE = "runs.sqlite3"
"""The file of the runs in the output folder, where no gateway is named."""
PROMPTS_VARIABLE = "DRAMATURG_GENERATION_PROMPTS_DIR"
"""The setting of the generation service that names the folder of its prompts."""


@app.command("reproduce")
def reproduce(
    paper: Annotated[PaperName, typer.Argument(metavar="PAPER", help=f"The paper: {', '.join(PaperName)}.")],
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR", exists=True, file_okay=False, help="The released data, or the folder above it."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The folder for tables and figures.")
    ],
    model: ModelsUnderTest = None,
    judge_model: Annotated[
        list[str] | None,
        typer.Option(metavar="[ROLE=]MODEL", help="The model of a role's judges, or of all judges."),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Reproduce only what needs no model.")] = False,
    target: Target = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="N samples of each run, drawn evenly over the data.")
    ] = None,
    concurrency: RunConcurrency = None,
    max_cost_usd: MaxCost = None,
    max_tokens: MaxTokens = None,
    dry_run: DryRun = False,
    pilot: Pilot = 0,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Seed of demonstrations, orders and intervals.",
            rich_help_panel=MORE,
        ),
    ] = 0,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations",
            help="Evaluate variants of the judges in more runs (abseval, drpe).",
            rich_help_panel=MORE,
        ),
    ] = False,
    perturbations: Annotated[
        bool,
        typer.Option(
            "--perturbations",
            help="Evaluate scripts with planted faults in one more run (abseval).",
            rich_help_panel=MORE,
        ),
    ] = False,
    perturbation_model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="A model plants the faults in place of rules. Implies --perturbations.",
            rich_help_panel=MORE,
        ),
    ] = "",
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="LABELS",
            exists=True,
            dir_okay=False,
            help="Labels of people on the scripts, item TASK/MODEL (abseval). Implies --ablations.",
            rich_help_panel=MORE,
        ),
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            exists=True,
            dir_okay=False,
            help="Tasks in place of the released ones (abseval), as tasks review writes them.",
            rich_help_panel=MORE,
        ),
    ] = None,
    pairwise: Annotated[
        bool,
        typer.Option(
            "--pairwise",
            help="Predict edges also pair by pair: a call for each ordered pair (proscript).",
            rich_help_panel=MORE,
        ),
    ] = False,
    predictions: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Edges of the development part (proscript), as graphs predict writes them.",
        ),
    ] = None,
    single_order: Annotated[
        bool,
        typer.Option(
            "--single-order",
            help="Show the texts of a pair in one order, drawn by the seed (drpe).",
            rich_help_panel=MORE,
        ),
    ] = False,
    max_output_tokens: MaxOutputTokens = None,
    demonstrations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            exists=True,
            dir_okay=False,
            help="Solved decisions in place of drawn ones (choice75), one DecisionDemonstration a line.",
            rich_help_panel=MORE,
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Prompts in place of the shipped ones (choice75, proscript).",
            rich_help_panel=MORE,
        ),
    ] = None,
    sheets: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder of sheets that people complete. By default OUT/sheets."),
    ] = None,
) -> None:
    """Reproduces the tables and figures of a paper from its released data.

    Models are evaluated in runs. The same command continues an interrupted run and makes no call twice. The
    folder has each table as Markdown, CSV and LaTeX (booktabs), each figure as SVG and PNG (with the extra
    plots), the figures of the runs as JSON, and README.md, which shows all of it and names what is not
    reproduced. Without --target the runs are kept in the folder.

    The expected calls and cost of each run are printed before it is created; --dry-run prints them alone. A
    run that depends on the result of another one is then missing.

    Where a paper asks people (proscript), the sheets to complete are written to OUT/sheets. The same command
    reads completed ones, of any number of people.

    Exit codes: 0 complete, 1 a run failed or samples failed, 2 wrong usage or data, 4 a run is partial (its
    budget is reached or its coverage is too low) or a dry run exceeds the budget, 130 interrupted.

    For example:

        dramaturg research reproduce choice75 --data data/ --model gpt-4o --model my-model -o out/choice75

        dramaturg research reproduce choice75 --data data/ --offline -o out/choice75
    """
    if bool(model) == offline:
        fail("name the models under test with --model, or reproduce without a model with --offline")
    try:
        judge_models = parse_models("--judge-model", judge_model or ())
        if not dry_run:
            out.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{out}: {error.strerror or error}")
    if offline and (known := models_of(out)):
        fail(f"{out}: has the results of {known}; name these models with --model, or another folder")
    if ablations and (paper not in (PaperName.ABSEVAL, PaperName.DRPE) or offline):
        fail("--ablations: only abseval and drpe have variants of judges, and they need models")
    if pairwise and (paper is not PaperName.PROSCRIPT or offline):
        fail("--pairwise: only proscript predicts edges, and models are needed")
    if predictions and paper is not PaperName.PROSCRIPT:
        fail("--predictions: only proscript predicts edges")
    if single_order and (paper is not PaperName.DRPE or offline):
        fail("--single-order: only drpe shows texts in both orders, and it needs models")
    perturbations = perturbations or bool(perturbation_model)
    if perturbations and (paper is not PaperName.ABSEVAL or offline):
        fail("--perturbations: only abseval has scripts with planted faults, and judges need models")
    for name, file in (("--labels", labels), ("--tasks", tasks)):
        if file is not None and (paper is not PaperName.ABSEVAL or offline):
            fail(f"{name}: only abseval has it, with models")
    if tasks is not None and perturbations:
        fail("--perturbations: faults are planted in the released scripts, which --tasks replaces")
    choices = {
        "--max-output-tokens": max_output_tokens,
        "--demonstrations": demonstrations,
    }
    for name, value in choices.items():
        if value is not None and (paper is not PaperName.CHOICE75 or offline):
            fail(f"{name}: only choice75 has it, with models")
    if prompts is not None and (paper not in (PaperName.CHOICE75, PaperName.PROSCRIPT) or offline):
        fail("--prompts: only choice75 and proscript have it, with models")
    if prompts is not None and target is not None:
        fail("--prompts: the gateway of --target has prompts of its own; set prompts_dir of its services")
    shown: Sequence[DecisionDemonstration] = ()
    if demonstrations is not None:
        with checked_rows(str(demonstrations), DecisionDemonstration) as (rows, _):
            shown = [row.request for row in rows]
    own: Sequence[Task] = ()
    if tasks is not None:
        with checked_rows(str(tasks), WriteScriptRequest) as (task_rows, _):
            own = [row.request.task for row in task_rows]
    people = {} if labels is None else read_labels(labels, MORE_THAN_HALF, "", target).labels
    module = find_paper(paper)

    store = None if target is not None or dry_run else (out / STORE).absolute()

    async def work() -> tuple[Reproduction, Session]:
        async with (
            gateway(target, module.ROLES, quiet=offline, run_store=store) as address,
            DramaturgClient(address) as client,
        ):
            session = Session(
                client,
                paper.value,
                tuple(dict.fromkeys(model or ())),
                lambda run_id: watch_run(client.runs, run_id),
                judge_models=judge_models,
                limit=limit,
                budget=make_budget(max_cost_usd, max_tokens),
                limits=None if concurrency is None else RunLimits(max_concurrent_samples=concurrency),
                seed=seed,
                announce=_announce,
                dry_run=dry_run,
                pilot_sample_count=pilot,
                out=out,
                ablations=ablations or labels is not None,
                tasks=own,
                people=people,
                perturbations=perturbations,
                perturbation_model=perturbation_model,
                pairwise=pairwise,
                predictions=predictions or (),
                single_order=single_order,
                max_output_tokens=max_output_tokens,
                demonstrations=shown,
                prompts=prompts,
                sheets=sheets,
            )
            return await module.reproduce(session, data), session

    try:
        folder = {} if prompts is None else {PROMPTS_VARIABLE: str(prompts.absolute())}
        with environment(folder):
            made, session = run(work())
        if not dry_run:
            write_folder(out, made, session.runs, session.models)
    except typer.Exit as stopped:
        if stopped.exit_code == INTERRUPTED:
            echo("interrupted; the same command continues", err=True)
        raise
    except DataError as error:
        fail(str(error))
    except RunStoppedError as error:
        fail(str(error), 1)
    except ServiceError as error:
        fail(f"{target or 'the gateway'}: {error.code.name}: {error.message}", 1)
    except OSError as error:
        fail(f"{error.filename or out}: {error.strerror or error}")
    if dry_run:
        raise typer.Exit(_print_estimates(session))
    console = output()
    if made.figures and not can_draw():
        console.print(NO_PLOTS, style="yellow")
    drawn = len(made.figures) if can_draw() else 0
    parts = f"{counted(len(made.tables), 'table')} and {counted(drawn, 'figure')}"
    for part in session.cut_short:
        console.print(f"partial: {part}", style="yellow", soft_wrap=True)
    console.print(f"{parts}: {out / INDEX}", soft_wrap=True)
    raise typer.Exit(_exit_code(session))


def _announce(estimate: Estimate) -> None:
    """Prints the expected cost of a run before it is created."""
    found = estimate.response
    calls = f"{found.model_call_count:,}" if found.HasField("model_call_count") else NOT_KNOWN
    cost = money(found.cost_usd) if found.HasField("cost_usd") else NOT_KNOWN
    described = f"{estimate.name}: {found.sample_count:,} samples, model calls: {calls}, cost: {cost}"
    missing = f"; not included: {'; '.join(found.unknown)}" if found.unknown else ""
    echo(described + missing, err=True)


def _print_estimates(session: Session) -> int:
    codes = [0]
    for name, response in session.estimates:
        typer.echo(name)
        codes.append(print_estimate(response, as_json=False))
    return max(codes)


def _exit_code(session: Session) -> int:
    codes = {EXIT_CODES.get(one.run.state, 1) for one in session.runs}
    failed = any(one.run.progress.failed_count for one in session.runs)
    if 1 in codes or failed:
        return 1
    return PARTIAL if PARTIAL in codes or session.cut_short else 0
