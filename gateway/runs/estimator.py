"""Estimates the calls, tokens, cost and duration of a run before anything is spent."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.estimate_pb2 import (
    EstimateRunRequest,
    EstimateRunResponse,
    ModelEstimate,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.generation.v1.generation_service_pb2 import ProviderCheck
from dramaturg.database import StoreError
from dramaturg.datasets import DatasetError
from dramaturg.judge.prompts import CHARACTERS_PER_TOKEN
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.provenance import total_usage
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.service.threads import IsStopped, gather_all, until_cancelled
from gateway.evaluations.kind import PlannedCalls
from gateway.evaluations.kinds import run_kind
from gateway.evaluations.repeats import check_repeats, repeat_count
from gateway.evaluations.scope import EvaluationContext, EvaluationScope
from gateway.judges.registry import Judge
from gateway.processes.process import OutOfTimeError, ProcessDiedError, ProcessLimits
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.dataset_process import DatasetThreads, first_valid, sample_reader
from gateway.runs.datasets import check_dataset
from gateway.runs.engine.policy import concurrent_samples
from gateway.runs.service.changes import check_spec
from gateway.runs.store import RunStore
from gateway.runs.store_calls import store_unavailable
from gateway.runs.uploads import as_file, ready_dataset

PLANNED_ROWS = 1000
"""The first valid rows that are planned; the calls of all rows are in proportion."""
READ_CPU_SECONDS = 120
"""The most processor time that a process takes to read a dataset for an estimate."""
_MILLION = 1_000_000
_CallKey = tuple[Judge, str, str | None]


@dataclass
class _Rows:
    """The rows of a dataset, and the planned calls of the first ones."""

    valid: int = 0
    invalid: int = 0
    planned: int = 0
    calls: Counter[_CallKey] = field(default_factory=Counter)
    """The number of calls by judge, model and prompt."""
    characters: Counter[_CallKey] = field(default_factory=Counter)
    assumptions: dict[str, None] = field(default_factory=dict)
    """What the numbers of calls suppose, in order."""
    first: list[bytes] = field(default_factory=list)
    """The rows of a pilot."""
    error: tuple[int, ServiceError] | None = None
    """The line and the error of the first row that cannot be planned."""


class Estimator:
    """Estimates runs.

    Args:
        context: The judges.
        access: The datasets that may be read.
        limits: The limits of a process that reads a dataset.

    Attributes:
        store: The run store, for uploaded datasets. None: there are no runs.
    """

    def __init__(self, context: EvaluationContext, access: DatasetAccess, limits: ProcessLimits) -> None:
        self._context = context
        self._access = access
        self._limits = replace(limits, cpu_seconds=READ_CPU_SECONDS)
        self._threads = DatasetThreads()
        self.store: RunStore | None = None

    async def estimate(self, request: EstimateRunRequest, scope: EvaluationScope) -> EstimateRunResponse:
        """Estimates a run of the tenant of a scope, which the samples of a pilot share.

        Raises:
            ServiceError: The spec or its rows are invalid; or the plan exceeds the budget before a pilot.
        """
        spec, tenant = request.spec, scope.tenant
        check_spec(spec, self._context.registry)
        access = self._access.of(tenant)
        check_dataset(spec.dataset, access)
        threads = partial(self._threads.of(spec, spec.dataset.content), tenant)
        try:
            rows = await until_cancelled(
                threads, self._read, spec, tenant, access, request.pilot_sample_count
            )
        except StoreError as error:
            raise store_unavailable(error) from error
        if rows.planned == 0:
            raise _unplannable(rows)
        response = EstimateRunResponse(sample_count=rows.valid, invalid_row_count=rows.invalid)
        by_batch = spec.HasField("batch_then_live")
        await self._add_plan(response, rows, by_batch=by_batch)
        response.budget_exceeded.extend(_exceeded(spec, response))
        if request.pilot_sample_count:
            if response.budget_exceeded:
                raise _over_budget(response.budget_exceeded)
            await self._add_pilot(response, spec, rows, scope)
            response.budget_exceeded[:] = _exceeded(spec, response)
        return response

    def _read(
        self, is_stopped: IsStopped, spec: RunSpec, tenant: str, access: DatasetAccess, pilot: int
    ) -> _Rows:
        if spec.dataset.dataset_id and self.store is None:
            raise invalid("spec.dataset.dataset_id", "is not known: this gateway has no runs")
        if spec.dataset.dataset_id and self.store is not None:
            ready_dataset(self.store, spec.dataset.dataset_id, tenant)
        rows, kind = _Rows(), run_kind(spec)
        bare = RunSpec()
        bare.CopyFrom(spec)
        content = bare.dataset.content
        if bare.dataset.WhichOneof("source") == "content":
            bare.dataset.content = b"carried apart"
        try:
            with as_file(bare, tenant, self.store, access, is_stopped) as (local, readable):
                reader = sample_reader(local, content, readable, self._limits, is_stopped)
                for index, sample in enumerate(first_valid(reader, max(pilot, PLANNED_ROWS))):
                    if index < pilot:
                        rows.first.append(sample.request)
                    if index < PLANNED_ROWS:
                        request: Any = kind.request_type.FromString(sample.request)
                        kind.apply_spec(request, spec)
                        self._plan(rows, sample.line, request, spec)
            rows.valid, rows.invalid = reader.manifest.row_count, reader.manifest.invalid_row_count
        except OutOfTimeError as error:
            raise invalid("spec.dataset", f"cannot be estimated: {error}; set a row_limit") from error
        except (DatasetError, ProcessDiedError) as error:
            raise invalid("spec.dataset", f"cannot be read: {error}") from error
        return rows

    def _plan(self, rows: _Rows, line: int, request: Any, spec: RunSpec) -> None:
        try:
            kind = run_kind(spec)
            check_repeats(request.options, kind.roles)
            calls = kind.planned_calls(request, spec, self._context)
        except ServiceError as error:
            rows.error = rows.error or (line, error)
            return
        rows.planned += 1
        for one in calls:
            key = one.judge, one.model, one.prompt
            repeats = repeat_count(one.judge.role, request.options)
            rows.calls[key] += repeats * one.call_count
            rows.characters[key] += repeats * one.characters
            if one.assumption:
                rows.assumptions[one.assumption] = None

    async def _add_plan(self, response: EstimateRunResponse, rows: _Rows, *, by_batch: bool) -> None:
        share = rows.valid / rows.planned
        found: dict[tuple[Judge, str], list[PlannedCalls]] = defaultdict(list)
        for (judge, model, prompt), count in rows.calls.items():
            calls = PlannedCalls(judge, model, count, rows.characters[judge, model, prompt], prompt)
            found[judge, model].append(calls)
        estimates = await gather_all(
            [
                self._model(judge, model, calls, share, response, by_batch=by_batch)
                for (judge, model), calls in found.items()
            ]
        )
        models = [one for one in estimates if one is not None]
        response.models.extend(models)
        response.model_call_count = sum(model.call_count for model in models)
        if not models or any(model.HasField("prompt_token_count") for model in models):
            response.prompt_token_count = sum(model.prompt_token_count for model in models)
        if not models:
            response.completion_token_count = 0
            response.cost_usd = 0
            return
        priced = [
            model.prompt_token_count * model.prompt_usd_per_million / _MILLION
            for model in models
            if model.HasField("prompt_usd_per_million") and model.HasField("prompt_token_count")
        ]
        if priced:
            response.cost_usd = sum(priced)
        response.unknown.extend(rows.assumptions)
        response.unknown.append(
            "the tokens received, their cost and the duration are not known: a pilot measures them"
        )

    async def _model(
        self,
        judge: Judge,
        model: str,
        calls: Sequence[PlannedCalls],
        share: float,
        response: EstimateRunResponse,
        *,
        by_batch: bool,
    ) -> ModelEstimate | None:
        """The calls of one model. None: the judge calls no models."""
        name = f"{judge.role.name}={judge.name}"
        identity = await self._context.directory.identity(judge)
        if identity is None:
            response.unknown.append(f"the calls of {name} are not known: it does not answer")
            return None
        if CALLS_MODELS not in identity.capabilities:
            return None
        count = sum(one.call_count for one in calls)
        estimate = ModelEstimate(role=judge.role.name, judge=judge.name, call_count=round(count * share))
        lengths = identity.prompt_token_counts
        if lengths:
            tokens = sum(
                one.call_count * _prompt_tokens(one.prompt, lengths) + one.characters / CHARACTERS_PER_TOKEN
                for one in calls
            )
            estimate.prompt_token_count = round(tokens * share)
        else:
            response.unknown.append(
                f"the tokens of {name} are not known: it states no lengths of its prompts"
            )
        await self._add_price(estimate, judge, model, response, by_batch=by_batch)
        return estimate

    async def _add_price(
        self,
        estimate: ModelEstimate,
        judge: Judge,
        model: str,
        response: EstimateRunResponse,
        *,
        by_batch: bool,
    ) -> None:
        check: ProviderCheck | None
        try:
            check = await self._context.directory.check_model(judge, model, configuration_only=True)
        except ServiceError as error:
            check = None
            why = error.message
        else:
            why = "its price is not in the price table"
        if check is not None:
            estimate.model = f"{check.provider}/{check.model}"
            estimate.price_source = check.price_source
        if check is None or not check.HasField("prompt_usd_per_million"):
            named = estimate.model or model or "the default model"
            response.unknown.append(f"the cost of {named} in {judge.role.name}={judge.name}: {why}")
            return
        in_batches = by_batch and check.HasField("batch_price_share")
        share = check.batch_price_share if in_batches else 1.0
        estimate.prompt_usd_per_million = share * check.prompt_usd_per_million
        estimate.completion_usd_per_million = share * check.completion_usd_per_million

    async def _add_pilot(
        self, response: EstimateRunResponse, spec: RunSpec, rows: _Rows, scope: EvaluationScope
    ) -> None:
        """Replaces the planned figures by those of a pilot."""
        kind = run_kind(spec)
        concurrency = concurrent_samples(spec.limits)
        slots = asyncio.Semaphore(concurrency)

        async def evaluate(row: bytes) -> tuple[Usage, float]:
            request: Any = kind.request_type.FromString(row)
            kind.apply_spec(request, spec)
            async with slots:
                begun = time.monotonic()
                result: Any = await kind.evaluate(request, spec, 0, self._context, scope)
                return result.usage, time.monotonic() - begun

        outcomes = await asyncio.gather(*map(evaluate, rows.first), return_exceptions=True)
        measured = [one for one in outcomes if not isinstance(one, BaseException)]
        failures = [one for one in outcomes if isinstance(one, BaseException)]
        if not measured:
            raise failures[0]
        usage = total_usage(spent for spent, _ in measured)
        share = rows.valid / len(measured)
        del response.unknown[:]
        response.pilot_sample_count = len(measured)
        response.usage.CopyFrom(usage)
        calls = usage.provider_call_count + usage.cache_hit_count
        response.model_call_count = round(calls * share)
        response.prompt_token_count = round(usage.prompt_token_count * share)
        response.completion_token_count = round(usage.completion_token_count * share)
        response.ClearField("cost_usd")
        if usage.HasField("cost_usd") or not usage.provider_call_count:
            response.cost_usd = usage.cost_usd * share
        seconds = sum(duration for _, duration in measured) * share / min(concurrency, rows.valid)
        response.duration.FromNanoseconds(round(seconds * 1e9))
        if failures:
            response.unknown.append(
                f"{len(failures)} of {len(outcomes)} samples of the pilot failed: {failures[0]}"
            )
        if spec.HasField("batch_then_live"):
            response.unknown.append("the pilot is made live: its cost is not that of batches")
        if usage.cache_hit_count:
            response.unknown.append(
                f"{usage.cache_hit_count} of {calls} calls of the pilot were answered from the ledger: their "
                "tokens, cost and duration are not known"
            )
        for number, what in (
            (usage.unpriced_call_count, "the cost of {} of {} calls of the pilot is not known"),
            (usage.unmetered_call_count, "the tokens of {} of {} calls of the pilot are not known"),
        ):
            if number:
                response.unknown.append(what.format(number, calls))


def _prompt_tokens(prompt: str | None, lengths: Mapping[str, int]) -> int:
    """The tokens of a prompt; of the longest one where it is not known by name."""
    if prompt is None:
        return 0
    return lengths[prompt] if prompt in lengths else max(lengths.values())


def _exceeded(spec: RunSpec, response: EstimateRunResponse) -> list[str]:
    budget, found = spec.budget, []
    tokens = response.prompt_token_count + response.completion_token_count
    if budget.max_cost_usd and response.cost_usd > budget.max_cost_usd:
        found.append(
            f"the expected cost, {response.cost_usd:.4g} USD, exceeds max_cost_usd, {budget.max_cost_usd:.4g}"
        )
    if budget.max_token_count and tokens > budget.max_token_count:
        found.append(f"the expected {tokens} tokens exceed max_token_count, {budget.max_token_count}")
    if budget.max_provider_call_count and response.model_call_count > budget.max_provider_call_count:
        found.append(
            f"the expected {response.model_call_count} calls exceed max_provider_call_count, "
            f"{budget.max_provider_call_count}"
        )
    return found


def _over_budget(exceeded: Sequence[str]) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED,
        f"no pilot is begun: {'; '.join(exceeded)}",
        metadata={"budget": "run"},
    )


def _unplannable(rows: _Rows) -> ServiceError:
    if rows.error is None:
        return invalid("spec.dataset", f"has no valid row, and {rows.invalid} invalid ones")
    line, error = rows.error
    return ServiceError(
        error.code,
        error.reason,
        f"no row can be evaluated; line {line}: {error.message}",
        metadata=error.metadata,
        violations=error.violations,
    )
