"""The page that compares a run with a baseline."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from aiohttp import web

from dramaturg.api.alignment.v1.accuracy_pb2 import ABSTENTION_POLICY_EXCLUDED
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.kinds import find_summary_kind
from dramaturg.report.comparison import render_comparison
from dramaturg.report.sample_view import SampleView
from dramaturg.report.views import view
from dramaturg.results.run_text import kind_name
from dramaturg.service.errors import invalid
from dramaturg.tables.comparison import BETTER, CHANGED, WORSE, Comparison, Flip
from gateway.console.visit import Visit, minute

MAX_SAMPLES = 500
"""The most samples of the page that have a judgement that changed."""

_PERMUTATIONS = 9999
_LISTED_RUNS = 100
_SAMPLES_PAGE = 200
_VALUES = {"passed": 1.0, "failed": 0.0}
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


async def choose(visit: Visit) -> web.StreamResponse:
    """The runs that a run can be compared with: those of its kind."""
    calls = visit.calls
    run = (await calls(calls.runs.GetRun, pb.GetRunRequest(run_id=visit.parameters["run"]))).run
    listed = await calls(calls.runs.ListRuns, pb.ListRunsRequest(page_size=_LISTED_RUNS))
    others = [
        (one.spec.display_name or one.id, one.create_time, urlencode({"baseline": one.id, "run": run.id}))
        for one in listed.runs
        if one.id != run.id and kind_name(one) == kind_name(run)
    ]
    return visit.page("compare.html.j2", run=run, others=others, kind=kind_name(run), most=_LISTED_RUNS)


async def show(visit: Visit) -> web.StreamResponse:
    """The comparison of two runs in its frame. Of two runs without a baseline it is the older one."""
    chosen = visit.request.query.getall("run", [])
    if "baseline" not in visit.request.query and len(chosen) == 2:
        runs = sorted(await _runs(visit, chosen), key=lambda run: run.create_time.ToNanoseconds())
        query = urlencode({"baseline": runs[0].id, "run": runs[1].id})
        return visit.redirect(f"/console/compare?{query}")
    ids = _ids(visit)
    baseline, run = await _runs(visit, ids)
    query = urlencode({"baseline": baseline.id, "run": run.id})
    swapped = urlencode({"baseline": run.id, "run": baseline.id})
    return visit.page("comparison.html.j2", baseline=baseline, run=run, query=query, swapped=swapped)


def _ids(visit: Visit) -> Sequence[str]:
    """The ids of the baseline and of the run."""
    query = visit.request.query
    ids = [query.get("baseline", ""), query.get("run", "")]
    if not all(ids):
        raise invalid("baseline" if not ids[0] else "run", "is required")
    if ids[0] == ids[1]:
        raise invalid("run", "is the baseline")
    return ids


async def _runs(visit: Visit, ids: Sequence[str]) -> Sequence[Run]:
    return [(await visit.calls(visit.calls.runs.GetRun, pb.GetRunRequest(run_id=one))).run for one in ids]


async def compare(visit: Visit) -> web.StreamResponse:
    """What got worse and better in a run than in a baseline, with the samples behind it."""
    calls, ids = visit.calls, _ids(visit)
    request = pb.CompareRunsRequest(
        run_ids=ids, permutation_count=_PERMUTATIONS, abstention_policy=ABSTENTION_POLICY_EXCLUDED
    )
    found = await calls(calls.runs.CompareRuns, request)
    runs = await _runs(visit, ids)
    summaries = [
        (await calls(calls.runs.GetSummary, pb.GetSummaryRequest(run_id=one))).summary for one in ids
    ]
    names = dict(zip(ids, _names(runs), strict=True))
    changed = {one.sample_id for one in found.flips}
    samples = {name: await _samples(visit, run_id, changed) for run_id, name in names.items()}
    models = await asyncio.to_thread(_models, samples[names[ids[1]]])
    made = _comparison(found, names, dict(zip(names.values(), summaries, strict=True)), models)
    title = f"{names[ids[1]]} against {names[ids[0]]}"
    text = await asyncio.to_thread(
        lambda: "".join(render_comparison(title, made, samples, MAX_SAMPLES, total=len(changed)))
    )
    return visit.report(text)


def _comparison(
    found: pb.CompareRunsResponse,
    names: Mapping[str, str],
    summaries: Mapping[str, Summary],
    models: Mapping[tuple[str, str], str],
) -> Comparison:
    response = found.comparison
    for one in response.comparisons:
        one.system = names.get(one.system, one.system)
    reasons = [named_reason(reason, names) for reason in response.gate_reasons]
    response.gate_reasons[:] = reasons
    flips = [
        Flip(
            names[one.run_id],
            one.sample_id,
            one.subject,
            one.aspect,
            one.baseline_outcome,
            one.outcome,
            _direction(one.baseline_outcome, one.outcome),
            models.get((one.sample_id, one.subject), ""),
        )
        for one in found.flips
    ]
    notes = [*found.left_out, "The samples are those with a judgement that differs from the baseline's."]
    if found.flip_count > len(flips):
        notes.append(f"The first {len(flips):,} of {found.flip_count:,} judgements that differ are listed.")
    kind = find_summary_kind(next(iter(summaries.values())))
    comparability = kind.results.comparability if kind is not None else None
    return Comparison(
        runs=list(names.values()),
        summaries=summaries,
        response=response,
        flips=flips,
        value=comparability.value if comparability else "",
        shares=comparability is None or comparability.shares,
        left_out=notes,
    )


def named_reason(reason: str, names: Mapping[str, str]) -> str:
    """A reason of the gate, which begins with the compared runs, with their names in place of their ids."""
    baseline, *others = names
    for one in others:
        start = f"{one} against {baseline}"
        if reason.startswith((f"{start}:", f"{start} in ")):
            return f"{names[one]} against {names[baseline]}{reason.removeprefix(start)}"
    return reason


def _direction(before: str, after: str) -> str:
    first, second = _value(before), _value(after)
    if first is None or second is None:
        return CHANGED
    return BETTER if second > first else WORSE


def _value(outcome: str) -> float | None:
    """An outcome as a number; None: an abstention."""
    found = _NUMBER.match(outcome)
    return float(found[0]) if found else _VALUES.get(outcome)


def _names(runs: Sequence[Run]) -> Sequence[str]:
    """Different names of runs: those with the same name have the time of their creation, or their ids."""
    names = [run.spec.display_name or run.id for run in runs]
    if len(set(names)) < len(names):
        names = [f"{name}, {minute(run.create_time)}" for name, run in zip(names, runs, strict=True)]
    return names if len(set(names)) == len(names) else [run.id for run in runs]


async def _samples(visit: Visit, run_id: str, wanted: set[str]) -> Sequence[RunSample]:
    """The first samples of a run that are wanted, by their ids."""
    request = pb.ListSamplesRequest(run_id=run_id, page_size=_SAMPLES_PAGE)
    found: list[RunSample] = []
    while len(found) < min(MAX_SAMPLES, len(wanted)):
        page = await visit.calls(visit.calls.runs.ListSamples, request)
        found += await asyncio.to_thread(_of, page.samples, wanted)
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    return found


def _of(samples: Sequence[RunSample], wanted: set[str]) -> Sequence[RunSample]:
    return [sample for sample in samples if _key(view(sample)) in wanted]


def _models(samples: Sequence[RunSample]) -> Mapping[tuple[str, str], str]:
    """The authors of subjects, by the ids of their samples and their own."""
    shown = map(view, samples)
    return {(_key(one), subject.title): subject.model for one in shown for subject in one.subjects}


def _key(shown: SampleView) -> str:
    return shown.sample_id or shown.title


ROUTES = (
    ("GET", r"runs/(?P<run>[A-Za-z0-9-]{1,64})/compare", choose),
    ("GET", "compare", show),
    ("GET", "compare/report", compare),
)
"""Method, path and handler of each page."""
