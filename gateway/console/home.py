"""The list of runs, with the main result of each."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunState
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.kinds import KINDS
from dramaturg.results.run_text import kind_name
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.tables import mean_text
from dramaturg.tables.model import ends_of
from gateway.console.runs import ACTIVE, RunView, run_view
from gateway.console.visit import Visit

_PAGE_SIZE = 30
_SEARCHED = 1000
"""The newest runs that are searched."""
_KEPT_RESULTS = 5000
_RESULTS_AT_ONCE = 4
_WAIT_SECONDS = 1.0
"""How long the page waits for results; the next refresh has those that take longer."""


@dataclass(frozen=True)
class MainResult:
    """The main result of a run."""

    text: str = ""
    """The first model of the leaderboard with its mean. Empty: no model is ranked."""
    interval: str = ""
    """The 95 % interval of that mean."""
    of: str = ""
    """The number of models, where there are several."""
    models: Sequence[str] = ()
    """All models, best first."""


class MainResults:
    """The main results of the last runs that were listed.

    A result is read once for each change of its run, with the permissions of the visitor who lists the run. A
    failure, such as a quota of the visitor, is not kept: it says nothing of the run.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], MainResult] = OrderedDict()
        self._pending: dict[tuple[str, int], asyncio.Task[MainResult | None]] = {}

    async def of(self, visit: Visit, runs: Sequence[Run]) -> dict[str, MainResult | None]:
        """The results of ended runs by their ids. None: it is being read."""
        turns = asyncio.Semaphore(_RESULTS_AT_ONCE)
        keys = {run.id: (run.id, run.update_time.ToNanoseconds()) for run in runs if run.state not in ACTIVE}
        for run in runs:
            key = keys.get(run.id)
            if key is not None and key not in self._kept and key not in self._pending:
                task = self._pending[key] = asyncio.create_task(_read(visit, run, turns))
                task.add_done_callback(partial(self._keep, key))
        waited = [self._pending[key] for key in keys.values() if key in self._pending]
        if waited:
            await asyncio.wait(waited, timeout=_WAIT_SECONDS)
            await asyncio.sleep(0)  # for the callbacks of those that are done
        return {run_id: self._kept.get(key) for run_id, key in keys.items()}

    def _keep(self, key: tuple[str, int], done: asyncio.Task[MainResult | None]) -> None:
        del self._pending[key]
        if not done.cancelled() and done.exception() is None and (result := done.result()) is not None:
            self._kept[key] = result
        while len(self._kept) > _KEPT_RESULTS:
            self._kept.popitem(last=False)


async def _read(visit: Visit, run: Run, turns: asyncio.Semaphore) -> MainResult | None:
    """The main result of a run. None: it cannot be read now."""
    if not run.progress.judgement_count:
        return MainResult()
    async with turns:
        try:
            request = pb.GetLeaderboardRequest(run_id=run.id)
            found = await visit.calls(visit.calls.runs.GetLeaderboard, request)
        except ServiceError:
            return None
    show = mean_text(kind_name(run))
    ranked = [one for one in found.entries if one.rank]
    models = [one.model for one in found.entries if one.model]
    if not ranked:
        return MainResult(models=models)
    first = ranked[0]
    name = f"{first.model} " if first.model and len(models) > 1 else ""
    of = f"first of {len(ranked)} models" if len(ranked) > 1 else ""
    if len(ranked) == 1 < len(models):
        of = f"alone ranked of {len(models)} models"
    return MainResult(f"{name}{show(first.mean)}", _interval(first, show), of, models)


def _interval(entry: LeaderboardEntry, show: Callable[[float | None], str]) -> str:
    return f"[{ends_of(entry.lower, entry.upper, show)}]" if entry.HasField("lower") else "no interval"


_RESULTS = MainResults()


async def list_runs(visit: Visit) -> web.StreamResponse:
    if not visit.serves("RunService"):
        return visit.redirect("/console/judges")
    return visit.page("runs.html.j2", **await _listed(visit))


async def list_runs_part(visit: Visit) -> web.StreamResponse:
    return visit.page("runs_part.html.j2", **await _listed(visit))


async def _listed(visit: Visit) -> dict[str, Any]:
    query = visit.request.query
    state, kind, words = query.get("state", ""), query.get("kind", ""), query.get("q", "").strip()
    name = f"RUN_STATE_{state.upper()}"
    if state and name not in RunState.keys():  # noqa: SIM118 - the enum is no mapping
        raise invalid("state", f"is {state!r}, which is no state of a run")
    searched = bool(kind or words)
    request = pb.ListRunsRequest(
        page_size=_SEARCHED if searched else _PAGE_SIZE,
        page_token="" if searched else query.get("page", ""),
        states=[RunState.Value(name)] if state else [],
    )
    response = await visit.calls(visit.calls.runs.ListRuns, request)
    runs = [run for run in response.runs if _matches(run, kind, words)]
    more = len(runs) > _PAGE_SIZE if searched else bool(response.next_page_token)
    shown = runs[:_PAGE_SIZE]
    results = await _RESULTS.of(visit, shown)
    following = {"state": state, "page": response.next_page_token}
    return {
        "runs": [_row(run, results.get(run.id, MainResult())) for run in shown],
        "states": [one.removeprefix("RUN_STATE_").lower() for one in RunState.keys()[1:]],
        "kinds": [one.name for one in KINDS],
        "state": state,
        "kind": kind,
        "words": words,
        "filtered": bool(state or searched),
        "query": urlencode({key: query[key] for key in ("state", "kind", "q", "page") if query.get(key)}),
        "next": urlencode({key: value for key, value in following.items() if value})
        if more and not searched
        else "",
        "cut": f"The first {_PAGE_SIZE} of {len(runs):,} runs that match, among the newest {_SEARCHED:,}."
        if more and searched
        else "",
        "compared": len(shown) > 1,
    }


def _row(run: Run, result: MainResult | None) -> tuple[RunView, MainResult | None, str, str]:
    """A run with its result, its judges and its models."""
    judges = list(dict.fromkeys(one.judge for one in run.judges)) or list(
        dict.fromkeys(one.judge or one.role for one in run.spec.judges)
    )
    models = list(dict.fromkeys([*run.spec.models, *(result.models if result else ())]))
    return run_view(run), result, _few(judges), _few(models)


def _few(names: Sequence[str], most: int = 4) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _matches(run: Run, kind: str, words: str) -> bool:
    spec = run.spec
    judges = [*(one.judge for one in run.judges), *(one.judge for one in spec.judges)]
    text = " ".join(
        [
            spec.display_name,
            run.id,
            run.creator,
            *spec.models,
            *judges,
            spec.options.model,
            *spec.labels.values(),
        ]
    ).casefold()
    return (not kind or kind_name(run) == kind) and all(word in text for word in words.casefold().split())


ROUTES = (
    ("GET", "", list_runs),
    ("GET", "runs/part", list_runs_part),
)
"""Method, path and handler of each page."""
