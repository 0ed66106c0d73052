"""What the commands of ``dramaturg runs create`` have in common: the options of every run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Annotated, Any

import typer
from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import Sampling
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunResponse
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunSpec
from dramaturg.cli.estimates import DryRun, Pilot, print_estimate
from dramaturg.cli.judge_selection import parse_judges, parse_models, set_judges
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import (
    AsJson,
    FileFormat,
    Judges,
    Limit,
    ModelsUnderTest,
    UnusableOutputsAbstain,
)
from dramaturg.cli.platform import fail
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunTarget, ask_gateway
from dramaturg.cli.runs.overview import print_run
from dramaturg.cli.runs.spec import (
    INLINE_BYTES,
    Attempts,
    EstimateUsage,
    FailFast,
    MaxAbstainedFraction,
    MaxCost,
    MaxFailed,
    MaxFailedFraction,
    MaxTokens,
    MinCoverage,
    Name,
    Priority,
    RunConcurrency,
    RunLabels,
    check_rows,
    make_budget,
    make_dataset,
    make_limits,
    make_policy,
    parse_labels,
    upload_rows,
)
from dramaturg.cli.runs.watch import Watch, follow
from dramaturg.cli.sampling_options import MaxOutputTokens, ReasoningEffort, Temperature, TopP
from dramaturg.cli.terminal import echo
from dramaturg.client import DramaturgClient
from dramaturg.datasets import local_path
from dramaturg.datasets.source import STANDARD_INPUT


def _create(
    evaluation: str,
    own: Message,
    limits: Mapping[str, float | None],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|ADDRESS",
            help="The samples: JSON Lines, CSV or Parquet. A local file of at most "
            f"{INLINE_BYTES >> 20} MiB is sent with the request, a larger one is uploaded before. An address "
            "(s3://bucket/rows.parquet) is read by the gateway; - is standard input.",
        ),
    ],
    target: RunTarget = DEFAULT_TARGET,
    by_reference: Annotated[
        bool, typer.Option("--by-reference", help="Send only the path; the gateway reads the file.")
    ] = False,
    form: FileFormat = None,
    limit: Limit = None,
    model: ModelsUnderTest = None,
    judge: Judges = None,
    judge_model: Annotated[
        list[str] | None,
        typer.Option(metavar="[ROLE=]MODEL", help="The model of a role's judges, or of all judges."),
    ] = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_output_tokens: MaxOutputTokens = None,
    reasoning_effort: ReasoningEffort = "",
    seed: Annotated[int | None, typer.Option(help="Sampling seed of judges and models.")] = None,
    unusable_outputs_abstain: UnusableOutputsAbstain = False,
    name: Name = None,
    label: RunLabels = None,
    concurrency: RunConcurrency = None,
    priority: Priority = None,
    max_cost_usd: MaxCost = None,
    max_tokens: MaxTokens = None,
    estimate_usage: EstimateUsage = False,
    max_failed: MaxFailed = None,
    max_failed_fraction: MaxFailedFraction = None,
    max_abstained_fraction: MaxAbstainedFraction = None,
    min_coverage: MinCoverage = None,
    fail_fast: FailFast = None,
    attempts: Attempts = 0,
    sample_timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Timeout of one attempt, in seconds. Default: 600.")
    ] = None,
    request_id: Annotated[
        str,
        typer.Option(metavar="UUID", help="Makes the command idempotent: a repetition returns the same run."),
    ] = "",
    watch: Watch = False,
    dry_run: DryRun = False,
    pilot: Pilot = 0,
    as_json: AsJson = False,
) -> None:
    try:
        judges = parse_judges(judge or ())
        judge_models = parse_models("--judge-model", judge_model or ())
    except ValueError as error:
        fail(str(error))
    spec = RunSpec(
        display_name=(PurePath(file).name if file != STANDARD_INPUT else "") if name is None else name,
        dataset=make_dataset(file, form, by_reference=by_reference, limit=limit),
        models=model or (),
        seed=seed,
        policy=make_policy(
            attempts,
            sample_timeout,
            max_failed_count=max_failed,
            max_failed_fraction=max_failed_fraction,
            max_abstained_fraction=max_abstained_fraction,
            min_coverage=min_coverage,
            fail_fast_sample_count=fail_fast,
            **limits,
        ),
        budget=make_budget(max_cost_usd, max_tokens, estimate_usage=estimate_usage),
        limits=make_limits(concurrency, priority),
        labels=parse_labels(label or ()),
        unusable_outputs_abstain=unusable_outputs_abstain,
    )
    # The models under test write the candidates; what the command sets need not stand in rows.
    written = ["candidates"] if evaluation == "scripts" and model else []
    check_rows(file, spec.dataset, type(own), [*written, *(field.name for field, _ in own.ListFields())])
    getattr(spec, evaluation).SetInParent()
    _copy_shared(own, getattr(spec, evaluation))
    sampling = Sampling(
        temperature=temperature,
        top_p=top_p,
        max_output_tokens=max_output_tokens,
        reasoning_effort=reasoning_effort,
    )
    if sampling.ByteSize():
        spec.options.sampling.CopyFrom(sampling)
    if of_all := judge_models.pop("", ""):
        spec.options.model = of_all
    set_judges(spec.judges, judges, judge_models)
    if dry_run:
        estimate = ask_gateway(target, lambda client: _estimated(client, spec, file, pilot))
        raise typer.Exit(print_estimate(estimate, as_json=as_json))
    run = ask_gateway(target, lambda client: _sent(client, spec, file, request_id))
    if watch:
        echo(run.id, err=as_json)
        follow(target, run.id, as_json=as_json)
    print_run(run, as_json=as_json)


async def _estimated(client: DramaturgClient, spec: RunSpec, file: str, pilot: int) -> EstimateRunResponse:
    await upload_rows(client, spec, local_path(file))
    return await client.estimate_run(spec, pilot_sample_count=pilot)


async def _sent(client: DramaturgClient, spec: RunSpec, file: str, request_id: str) -> Run:
    await upload_rows(client, spec, local_path(file))
    return await client.runs.create(spec, request_id=request_id)


def command_of(evaluation: str, **limits: Any) -> Callable[[Callable[..., Message]], Callable[..., None]]:
    """A command that creates a run.

    Its options are those of every run (the parameters of ``_create``) and those of the function, which sets
    in an empty row what the run sets in every row. The options of a kind are a group of the function
    (``takes_groups``), which the command that evaluates the kind has too.

    Args:
        evaluation: The evaluation's name in ``RunSpec``.
        limits: The options that set optional fields of ``RunPolicy``, by field.
    """
    common = list(inspect.signature(_create, eval_str=True).parameters.values())[3:]
    policy = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in limits.items()
    ]

    def decorate(function: Callable[..., Message]) -> Callable[..., None]:
        own = takes_groups(function)
        mine = list(inspect.signature(own, eval_str=True).parameters.values())

        def command(**given: Any) -> None:
            passed = {one.name: given[one.name] for one in mine}
            taken = {one.name: given[one.name] for one in common}
            try:
                row = own(**passed)
            except ValueError as error:
                fail(str(error))
            _create(evaluation, row, {name: given[name] for name in limits}, **taken)

        # An option may belong to both: the models under test.
        names = {one.name for one in common}
        parameters = [*common, *(one for one in mine if one.name not in names), *policy]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__doc__ = function.__doc__
        return command

    return decorate


def _copy_shared(row: Message, options: Message) -> None:
    """Copies to the options of a run what they share with a row, by name."""
    shared = {field.name for field in options.DESCRIPTOR.fields}
    for field, value in row.ListFields():
        if field.name not in shared:
            continue
        if field.is_repeated:
            getattr(options, field.name).extend(value)
        elif field.message_type is not None:
            getattr(options, field.name).CopyFrom(value)
        else:
            setattr(options, field.name, value)
