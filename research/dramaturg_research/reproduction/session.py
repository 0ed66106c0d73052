"""A reproduction in progress: its models, its gateway, and the runs that it makes."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as run_service
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunResponse
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunBudget, RunLimits, RunSample, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions, TagGrouping
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionDemonstration
from dramaturg.cli.evaluation_runs import continue_run
from dramaturg.client import DramaturgClient
from dramaturg.run_client import ENDED

LABEL = "reproduction"
"""The label of every run of a reproduction. Its value identifies the spec."""

Item = TypeVar("Item")


def evenly(items: Sequence[Item], limit: int) -> Sequence[Item]:
    """At most this number of items, evenly spaced."""
    if limit >= len(items):
        return items
    return [items[index * len(items) // limit] for index in range(limit)]


class RunStoppedError(Exception):
    """A run ended, or was paused by the engine, without a result; the message has its reason."""

    def __init__(self, run: Run) -> None:
        state = run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_").lower()
        super().__init__(f"the run {run.id} is {state} without a result: {run.state_reason or 'no reason'}")


@dataclass(frozen=True)
class RunRecord:
    """A run of the reproduction."""

    name: str
    """Its part, e.g. "decisions"."""
    run: Run
    """The run as it ended."""
    summary: Summary
    """Its figures."""


class Estimate(NamedTuple):
    """What a run is expected to take."""

    name: str
    """The part of the reproduction."""
    response: EstimateRunResponse
    """The calls, tokens, cost and time."""


@dataclass
class Session:
    """The models and the gateway of a reproduction.

    A run is identified by its spec: the same command finds the run of an earlier one, continues it if it is
    not complete, and makes no call for a sample that has a result.
    """

    client: DramaturgClient
    """The gateway."""
    paper: str
    """The name of the paper."""
    models: Sequence[str]
    """The models under test. Empty: only what needs no model is reproduced."""
    follow: Callable[[str], Awaitable[Run]]
    """Waits for the end of a run, by its id."""
    judge_models: Mapping[str, str] = field(default_factory=dict)
    """The models of judges by role; the role "" stands for all others."""
    limit: int | None = None
    """The number of samples of each run, drawn evenly over the data. None: all."""
    budget: RunBudget | None = None
    """The budget of each run."""
    limits: RunLimits | None = None
    """The concurrency of each run."""
    seed: int = 0
    """The seed of draws and intervals."""
    announce: Callable[[Estimate], None] = lambda _: None
    """Receives the estimate of each new run before it is created."""
    dry_run: bool = False
    """Whether runs are estimated only. Their summaries are then empty."""
    pilot_sample_count: int = 0
    """The number of samples that an estimate of a dry run evaluates, which are bought."""
    out: Path | None = None
    """The folder of the reproduction. None: nothing but the result is kept."""
    ablations: bool = False
    """Whether variants of the judges are evaluated too."""
    perturbations: bool = False
    """Whether scripts with planted faults are evaluated too."""
    perturbation_model: str = ""
    """The model that plants the faults. Empty: rules do."""
    tasks: Sequence[Task] = ()
    """Tasks in place of the released ones. Empty: the released ones."""
    people: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether people pass a script of a model, by TASK/MODEL and criterion. Empty: there are no labels."""
    max_output_tokens: int | None = None
    """The token cap of answers of the models under test. None: that of the service."""
    demonstrations: Sequence[DecisionDemonstration] = ()
    """Solved examples. Empty: they are drawn from the released data."""
    prompts: Path | None = None
    """The folder of the prompts that the services of this process use. None: the shipped ones."""
    pairwise: bool = False
    """Whether edges are also predicted pair by pair."""
    predictions: Sequence[Path] = ()
    """Files of edges that were predicted before, e.g. by a trained edge model."""
    single_order: bool = False
    """Whether the texts of a pair are shown in one order, the drawn one, in place of both."""
    sheets: Path | None = None
    """The folder of sheets that people complete. None: ``sheets`` in the folder of the reproduction."""
    runs: list[RunRecord] = field(default_factory=list)
    """The runs so far."""
    cut_short: list[str] = field(default_factory=list)
    """What the budget ended before it was whole, besides runs."""
    estimates: list[Estimate] = field(default_factory=list)
    """The estimates of a dry run."""

    @property
    def offline(self) -> bool:
        """Whether only what needs no model is reproduced."""
        return not self.models

    def selected(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items within the limit, evenly spaced."""
        return items if self.limit is None else evenly(items, self.limit)

    def judge_model(self, role: str) -> str:
        """The model of a role's judges. Empty: that of the service."""
        return self.judge_models.get(role) or self.judge_models.get("", "")

    def options(self, *groupings: Sequence[str]) -> SummaryOptions:
        """The options of a summary, with these groupings of tags."""
        return SummaryOptions(groupings=[TagGrouping(tags=tags) for tags in groupings], seed=self.seed)

    async def run(
        self,
        name: str,
        spec: RunSpec,
        rows: Sequence[Message],
        options: SummaryOptions | None = None,
        *,
        judge_roles: Sequence[str] = (),
        limited: bool = True,
    ) -> Summary:
        """Evaluates rows as a durable run and returns its figures.

        Args:
            name: The part of the reproduction.
            spec: The kind of evaluation with its options; the dataset, the models of judges, the budget, the
                limits and the labels are added.
            rows: The rows.
            options: The options of the summary. None: no groups.
            judge_roles: The roles whose judges use the models of ``judge_models``.
            limited: Whether the limit is applied to the rows.

        Raises:
            RunStoppedError: The run ended without a result.
            ServiceError: The gateway refused the run or failed.
        """
        found = RunSpec()
        found.CopyFrom(spec)
        found.display_name = f"{self.paper}: {name}"
        found.dataset.CopyFrom(_dataset(self.selected(rows) if limited else rows))
        for role in judge_roles:
            if model := self.judge_model(role):
                found.judges.add(role=role, model=model)
        if self.prompts is not None:
            # A run with other prompts is another run.
            found.labels["prompts"] = _digest(self.prompts)
        identity = hashlib.sha256(found.SerializeToString(deterministic=True)).digest()
        found.labels["paper"] = self.paper
        if self.budget is not None:
            found.budget.CopyFrom(self.budget)
        if self.limits is not None:
            found.limits.CopyFrom(self.limits)
        if self.dry_run:
            response = await self.client.estimate_run(found, pilot_sample_count=self.pilot_sample_count)
            self.estimates.append(Estimate(name, response))
            return Summary()
        ended = await self._complete(name, found, identity)
        summary = (await self.client.runs.summary(ended.id, options or self.options())).summary
        if summary.WhichOneof("kind") is None:
            raise RunStoppedError(ended)
        self.runs.append(RunRecord(name, ended, summary))
        return summary

    async def summarize(self, samples: Iterable[RunSample], options: SummaryOptions | None = None) -> Summary:
        """Computes the figures of results that need no run.

        Raises:
            ServiceError: The gateway failed.
        """
        return await self.client.summarize(samples, options or self.options())

    async def samples(self, name: str) -> Sequence[RunSample]:
        """The results of a run that ended, by its part."""
        run = next(one.run for one in self.runs if one.name == name)
        return [sample async for sample in self.client.runs.samples(run.id)]

    async def _complete(self, name: str, spec: RunSpec, identity: bytes) -> Run:
        """The run of this spec, ended: an earlier one, continued, or a new one."""
        runs, is_new = self.client.runs, False

        async def announce() -> None:
            nonlocal is_new
            is_new = True
            self.announce(Estimate(name, await self.client.estimate_run(spec)))

        run = await continue_run(self.client, spec, LABEL, identity, ended=True, before=announce)
        if run.state not in ENDED:
            run = await self.follow(run.id)
        if is_new:
            return run
        incomplete = run.state != run_pb2.RUN_STATE_SUCCEEDED or run.progress.failed_count
        if run.state in ENDED and incomplete:
            # Answers that were received come from the ledger again: only calls that failed are made anew.
            run = await runs.rerun(run.id, run_service.RERUN_SCOPE_FAILED_OR_ABSTAINED)
            run = await self.follow(run.id)
        return run


def _digest(folder: Path) -> str:
    """The SHA-256 of the names and contents of the files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.md")):
        digest.update(f"{file.name}\n{file.read_text(encoding='utf-8')}\n".encode())
    return digest.hexdigest()


def _dataset(rows: Sequence[Message]) -> Dataset:
    # Maps have no order of their own, and equal rows must give equal bytes: a run is found by its spec.
    lines = "".join(f"{MessageToJson(row, indent=None, sort_keys=True)}\n" for row in rows)
    return Dataset(content=lines.encode(), format=run_pb2.DATASET_FORMAT_JSONL)
