"""The page of a run: its progress, its report, and what can be done with it."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web
from google.protobuf.message import Message

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import ListModelWaitsRequest
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_OUTCOME_JUDGED,
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    SAMPLE_STATE_SUCCEEDED,
    Run,
    RunBudget,
)
from dramaturg.api.evaluation.v1.summary_pb2 import JudgeComparison, Summary
from dramaturg.results.quantities import consumption, duration, money
from dramaturg.results.run_text import describe_hindrance, kind_name, outcome_name, state_name
from dramaturg.service.auth.settings import JUDGES_READ
from dramaturg.tables.common import comparison_sections
from dramaturg.tables.model import percent
from gateway.console.labels import can_be_labelled
from gateway.console.visit import REPORT_HEADERS, Visit

_FIRST_SAMPLES = 5
_DEPTH = 2
"""The result of a sample, and its judged parts."""
_FAILED_WITH = re.compile(r" with [A-Z_]+(?: \(ERROR_REASON_[A-Z_]+\))?(?=:)")
_CAPITALS = re.compile(r"\([A-Z_0-9, ]+\)")
_REASONS = frozenset(
    name.removeprefix(prefix)
    for kind, prefix in ((ErrorReason, "ERROR_REASON_"), (AbstainReason, "ABSTAIN_REASON_"))
    for name in kind.keys()  # noqa: SIM118 - the enum is no mapping
)
ACTIVE = frozenset({RUN_STATE_PREPARING, RUN_STATE_RUNNING, RUN_STATE_PAUSED})
_ACTIONS = {
    "pause": ("Pause", frozenset({RUN_STATE_RUNNING})),
    "resume": ("Resume", frozenset({RUN_STATE_PAUSED})),
    "cancel": ("Cancel", ACTIVE),
}
_SCOPES = {
    "failed-or-abstained": (
        "failed samples and those with an abstention",
        pb.RERUN_SCOPE_FAILED_OR_ABSTAINED,
    ),
    "failed": ("failed samples", pb.RERUN_SCOPE_FAILED),
    "all": ("all samples", pb.RERUN_SCOPE_ALL),
}
"""What a rerun evaluates again, by its name in the form."""
_EXPORTS = {
    "judgements.csv": (pb.EXPORT_FORMAT_CSV, "judgements, one a row"),
    "judgements.jsonl": (pb.EXPORT_FORMAT_JSONL, "judgements, one a line"),
    "samples.jsonl": (pb.EXPORT_FORMAT_SAMPLES_JSONL, "complete samples, one a line"),
}
"""The files of a run: the format, and what they have."""


@dataclass(frozen=True)
class Meter:
    """A quantity against its limit."""

    name: str
    text: str
    share: float
    """The part of the limit that is reached, from 0 to 1."""


@dataclass(frozen=True)
class RunView:
    """A run as its pages show it."""

    id: str
    name: str
    kind: str
    state: str
    active: bool
    outcome: str
    reason: str
    samples: str
    finished: int
    """The samples with a result or a failure."""
    done: float
    """The share of finished samples, from 0 to 1."""
    judgements: str
    coverage: str
    rate: str
    remaining: str
    consumption: str
    hindrance: str
    budget: Sequence[Meter]
    abstentions: Sequence[tuple[str, int]]
    failures: Sequence[tuple[str, int]]
    missing_gold_answers: Sequence[tuple[str, int]]
    actions: Sequence[tuple[str, str]]
    run: Run


def run_view(run: Run, waits: Sequence[str] = ()) -> RunView:
    """The view of a run.

    Args:
        run: The run.
        waits: The rate limits that model calls wait for.
    """
    progress, running = run.progress, run.state == RUN_STATE_RUNNING
    done = progress.succeeded_count + progress.failed_count
    hindrance = ""
    if running:
        progress.model_waits.extend(waits)
        hindrance = describe_hindrance(progress, time.time())
    known_rate = running and progress.HasField("samples_per_second")
    known_rest = running and progress.HasField("remaining_time")
    return RunView(
        id=run.id,
        name=run.spec.display_name or run.id,
        kind=kind_name(run),
        state=state_name(run.state),
        active=run.state in ACTIVE,
        # That everything was judged is what the state says.
        outcome=""
        if run.outcome == RUN_OUTCOME_JUDGED
        else outcome_name(run.outcome).replace("_", " ").lower(),
        reason=in_words(run.state_reason),
        samples=f"{done:,} of {progress.sample_count:,}",
        finished=done,
        done=done / progress.sample_count if progress.sample_count else 0.0,
        judgements=f"{progress.judgement_count:,}",
        coverage=percent(progress.coverage) if progress.HasField("coverage") else "",
        rate=f"{progress.samples_per_second:.3g} samples/s" if known_rate else "",
        remaining=duration(progress.remaining_time.ToNanoseconds() / 1e9) if known_rest else "",
        consumption=consumption(progress.usage).removeprefix(", "),
        hindrance=in_words(hindrance),
        budget=list(_budget(run)),
        abstentions=_counts(progress.abstentions_by_reason),
        failures=_counts(progress.failures_by_reason),
        missing_gold_answers=_counts(progress.gold_answers.missing_by_reason),
        actions=[(name, label) for name, (label, states) in _ACTIONS.items() if run.state in states],
        run=run,
    )


def in_words(text: str) -> str:
    """The reason of a state or a wait without the names of codes and reasons."""

    def lower(found: re.Match[str]) -> str:
        known = set(re.findall("[A-Z_]+", found[0])) <= _REASONS
        return found[0].replace("_", " ").lower() if known else found[0]

    return _CAPITALS.sub(lower, _FAILED_WITH.sub("", text))


def _budget(run: Run) -> Sequence[Meter]:
    budget: RunBudget = run.spec.budget
    usage = run.progress.usage
    tokens = usage.prompt_token_count + usage.completion_token_count
    calls = usage.provider_call_count
    bound = "at least " if usage.unpriced_call_count else ""
    limits = (
        ("cost", usage.cost_usd, budget.max_cost_usd, f"{bound}{money(usage.cost_usd)}", money),
        ("tokens", tokens, budget.max_token_count, f"{tokens:,}", "{:,}".format),
        ("model calls", calls, budget.max_provider_call_count, f"{calls:,}", "{:,}".format),
    )
    return [
        Meter(name, f"{text} of {show(limit)}", min(1.0, used / limit))
        for name, used, limit, text, show in limits
        if limit
    ]


def _counts(counts: Any) -> Sequence[tuple[str, int]]:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return [(name.replace("_", " ").lower(), count) for name, count in ordered]


async def show_run(visit: Visit) -> web.StreamResponse:
    view = await _find(visit)
    labelled = visit.serves("LabelService") and can_be_labelled(view.kind)
    request = pb.ListSamplesRequest(run_id=view.id, page_size=_FIRST_SAMPLES, states=[SAMPLE_STATE_SUCCEEDED])
    first = await visit.calls(visit.calls.runs.ListSamples, request)
    return visit.page(
        "run.html.j2",
        view=view,
        labelled=labelled,
        shadowed=any(_has_shadows(one, _DEPTH) for one in first.samples),
        exports=[(name, about) for name, (_, about) in _EXPORTS.items()],
        scopes=[(name, about) for name, (about, _) in _SCOPES.items()],
    )


def _has_shadows(message: Message, depth: int) -> bool:
    """Whether a result has assessments of shadows, which each judged part of a shadowed sample has."""
    for field, value in message.ListFields():
        if field.name == "shadows":
            return True
        if depth and field.message_type is not None and not field.message_type.GetOptions().map_entry:
            parts = value if field.is_repeated else [value]
            if any(_has_shadows(part, depth - 1) for part in parts):
                return True
    return False


async def show_run_part(visit: Visit) -> web.StreamResponse:
    return visit.page("run_part.html.j2", view=await _find(visit))


async def _find(visit: Visit) -> RunView:
    request = pb.GetRunRequest(run_id=visit.parameters["run"])
    response = await visit.calls(visit.calls.runs.GetRun, request)
    waits: Sequence[str] = ()
    if response.run.state == RUN_STATE_RUNNING and visit.may(JUDGES_READ):
        waits = (await visit.calls(visit.calls.judges.ListModelWaits, ListModelWaitsRequest())).waits
    return run_view(response.run, waits)


async def show_shadows(visit: Visit) -> web.StreamResponse:
    """The agreement of judges with their shadows, of the finished samples."""
    calls, run_id = visit.calls, visit.parameters["run"]
    run = (await calls(calls.runs.GetRun, pb.GetRunRequest(run_id=run_id))).run
    found = await calls(calls.runs.GetSummary, pb.GetSummaryRequest(run_id=run_id))
    compared = Summary(judge_comparisons=[one for one in found.summary.judge_comparisons if one.figures])
    # The verdicts that differ are folded; they link to the samples of the report.
    sections = [
        replace(section, tables=[table for table in section.tables if not table.folded])
        for section in comparison_sections(compared)
    ]
    without = [(one, _counts(_reasons(one))) for one in found.summary.judge_comparisons if not one.figures]
    return visit.page("shadows.html.j2", run=run, sections=sections, without=without)


def _reasons(comparison: JudgeComparison) -> Counter[str]:
    """Why two judges have no verdicts to compare: what neither abstained from nor missed is of both."""
    counts: Counter[str] = Counter(comparison.unseen_by_reason)
    for judge in (comparison.first, comparison.second):
        counts.update(judge.abstentions_by_reason)
    return counts


async def change_run(visit: Visit) -> web.StreamResponse:
    calls, run_id = visit.calls, visit.parameters["run"]
    match visit.parameters["action"]:
        case "pause":
            await calls(calls.runs.PauseRun, pb.PauseRunRequest(run_id=run_id))
        case "resume":
            await calls(calls.runs.ResumeRun, pb.ResumeRunRequest(run_id=run_id))
        case "cancel":
            await calls(calls.runs.CancelRun, pb.CancelRunRequest(run_id=run_id))
        case "rerun":
            form = await visit.form()
            scope = _SCOPES.get(form.get("scope", ""), ("", pb.RERUN_SCOPE_UNSPECIFIED))[1]
            request = pb.RerunSamplesRequest(run_id=run_id, scope=scope, fresh="fresh" in form)
            await calls(calls.runs.RerunSamples, request)
        case "delete":
            await calls(calls.runs.DeleteRun, pb.DeleteRunRequest(run_id=run_id))
            return visit.redirect("/console/")
    return visit.redirect(f"/console/runs/{run_id}")


async def export(visit: Visit) -> web.StreamResponse:
    """The judgements of a run, or its complete samples, as a file."""
    calls, run_id, name = visit.calls, visit.parameters["run"], visit.parameters["name"]
    form, _ = _EXPORTS[name]
    request = pb.ExportResultsRequest(run_id=run_id, format=form)
    headers = {"Content-Disposition": f'attachment; filename="{run_id}-{name}"'}
    response = web.StreamResponse(headers=headers)
    response.content_type = "text/csv" if name.endswith(".csv") else "application/octet-stream"
    return await _stream(visit, response, calls.runs.ExportResults, request)


async def report(visit: Visit) -> web.StreamResponse:
    """The report of GetReport, also while the run goes on."""
    request = pb.GetReportRequest(run_id=visit.parameters["run"])
    response = web.StreamResponse(headers=REPORT_HEADERS)
    response.content_type, response.charset = "text/html", "utf-8"
    return await _stream(visit, response, visit.calls.runs.GetReport, request)


async def _stream(
    visit: Visit, response: web.StreamResponse, method: Any, request: Message
) -> web.StreamResponse:
    """Sends the pieces of a call. A failure before the first of them is a page."""
    async with aclosing(visit.calls.stream(method, request)) as pieces:
        async for piece in pieces:
            if not response.prepared:
                await response.prepare(visit.request)
            await response.write(piece.chunk)
    if not response.prepared:
        await response.prepare(visit.request)
    await response.write_eof()
    return response


_RUN = r"runs/(?P<run>[A-Za-z0-9-]{1,64})"

ROUTES = (
    ("GET", _RUN, show_run),
    ("GET", f"{_RUN}/part", show_run_part),
    ("GET", f"{_RUN}/report", report),
    ("GET", f"{_RUN}/shadows", show_shadows),
    ("GET", f"{_RUN}/(?P<name>{'|'.join(map(re.escape, _EXPORTS))})", export),
    ("POST", f"{_RUN}/(?P<action>pause|resume|cancel|rerun|delete)", change_run),
)
"""Method, path and handler of each page."""
