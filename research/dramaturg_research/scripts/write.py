"""``dramaturg research scripts write``."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1.judging_pb2 import Sampling
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest, WriteScriptResponse
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.authoring.scripts import UNUSABLE_SCRIPTS
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.options import AsJson, ReasoningEffort, Target
from dramaturg.cli.output_files import check_writable, write_messages
from dramaturg.cli.platform import fail, gateway, run
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets import Row
from dramaturg.service.channel import open_channel
from dramaturg_research.concurrent_calls import call_each

DEFAULT_MODEL = "default"
"""How the candidate of the author's own model is named."""


class Written(NamedTuple):
    """A script that was asked for."""

    line: int
    """The number of its task's line, from 1."""
    request: WriteScriptRequest
    """The request."""
    response: WriteScriptResponse
    """The response; its failure states why there is no script."""

    @property
    def model(self) -> str:
        """The model that was asked."""
        return self.request.options.model or DEFAULT_MODEL

    def describe(self) -> dict[str, Any]:
        """The response as a JSON object, with its provenance."""
        return {
            "line": self.line,
            "task_id": self.request.task.id,
            "model": self.model,
            "response": MessageToDict(self.response, preserving_proto_field_name=True),
        }


def write(
    file: Annotated[
        str, typer.Argument(metavar="TASKS.jsonl", help="The tasks, one a line; - reads standard input.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.jsonl", help="The rows of the kind scripts to write.")
    ],
    model: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="A model under test; repeatable.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="Default: that of the row.")] = None,
    top_p: Annotated[float | None, typer.Option(min=0, max=1, help="Default: that of the row.")] = None,
    max_output_tokens: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Maximum number of tokens of a script.")
    ] = None,
    reasoning_effort: ReasoningEffort = "",
    seed: Annotated[int | None, typer.Option(help="Sampling seed, for providers that support it.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks.")] = None,
    target: Target = None,
    as_json: AsJson = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Scripts written at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of one script, in seconds.")] = 300.0,
) -> None:
    """Writes a script for every task with every model under test (ABSEval, section 4.1).

    Each line is a WriteScriptRequest in protobuf's JSON ("research scripts review" writes them). FILE
    gets a row of the kind "scripts" for each task, with a candidate of each model; the tags "topic",
    "constraints" (how many) and "sampling" can group its verdicts. FILE.written.jsonl records how each
    script was made, including failures, which are counted and are not candidates. Recorded completions
    are used again.

    Exit codes: 0 every script was written, 1 some were not, 2 wrong usage or rows.

    For example:

        dramaturg research scripts write tasks.jsonl --model llama --model qwen --temperature 0 -o out.jsonl
    """
    sampling = Sampling(
        temperature=temperature,
        top_p=top_p,
        max_output_tokens=max_output_tokens,
        reasoning_effort=reasoning_effort,
        seed=seed,
    )
    with checked_rows(file, WriteScriptRequest, limit) as (rows, _):
        asked = list(_spread(rows, list(dict.fromkeys(model or [""])), sampling))
    record = out.with_suffix(".written.jsonl")
    check_writable(out, record)
    written = run(_write(target, asked, concurrency, timeout))
    requests = script_rows(written)
    write_messages(out, requests)
    try:
        with record.open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(one.describe(), ensure_ascii=False) + "\n" for one in written)
    except OSError as error:
        fail(f"{record}: {error.strerror or error}")
    failures: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in written:
        if one.response.failure:
            failures[one.model][one.response.failure] += 1
    failed = sum(map(Counter.total, failures.values()))
    tasks = len({one.line for one in written})
    if as_json:
        summary = {
            "tasks": tasks,
            "rows": len(requests),
            "asked": len(written),
            "failed": failed,
            "failures": {name: dict(why) for name, why in failures.items()},
            "without_steps": sum(not (one.response.failure or one.response.script.steps) for one in written),
            "out": str(out),
            "written": str(record),
        }
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        echo(
            f"{len(written) - failed} of {len(written)} scripts for {tasks} tasks to {out}; how they were "
            f"made: {record}"
        )
    for name, reasons in failures.items():
        for why, count in reasons.items():
            echo(f"{name}: {count} not written: {why}", err=True)
    tell_next("eval", out)
    raise typer.Exit(1 if failed else 0)


def script_rows(written: Sequence[Written]) -> Sequence[EvaluateScriptsRequest]:
    """A row of the kind ``scripts`` for each task that a model answered, in the order of the tasks."""
    rows: dict[int, EvaluateScriptsRequest] = {}
    for one in written:
        unusable = UNUSABLE_SCRIPTS.get(one.response.failure)
        if one.response.failure and unusable is None:
            continue
        row = rows.get(one.line)
        if row is None:
            row = rows[one.line] = EvaluateScriptsRequest(task=one.request.task, tags=_tags(one))
        candidate = row.candidates.add(id=one.model, model=one.model)
        if unusable is None:
            candidate.text = one.response.text
        else:
            candidate.failure_reason = unusable
    return list(rows.values())


async def _write(
    target: str | None, asked: Sequence[Row[WriteScriptRequest]], concurrency: int, timeout: float
) -> Sequence[Written]:
    async with gateway(target, ["author"]) as address, open_channel(address) as channel:
        author = AuthoringServiceStub(channel)
        responses = await call_each(
            [request for _, request in asked],
            lambda request: author.WriteScript(request, timeout=timeout),
            lambda why: WriteScriptResponse(failure=why),
            concurrency,
        )
    return [Written(*row, response) for row, response in zip(asked, responses, strict=True)]


def _spread(
    rows: Iterable[Row[WriteScriptRequest]], models: Sequence[str], sampling: Sampling
) -> Iterator[Row[WriteScriptRequest]]:
    for line, request in rows:
        for model in models:
            one = WriteScriptRequest()
            one.CopyFrom(request)
            one.options.model = model or one.options.model
            one.options.sampling.MergeFrom(sampling)
            yield Row(line, one)


def _tags(written: Written) -> Mapping[str, str]:
    task, parameters = written.request.task, written.response.provenance.parameters
    sampling = ", ".join(f"{name}={value}" for name, value in sorted(parameters.items()))
    tags = {"topic": task.topic, "constraints": str(len(task.constraints)), "sampling": sampling}
    return {name: value for name, value in tags.items() if value}
