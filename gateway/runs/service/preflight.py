"""Checks the first rows, the models and the budget of a run before it is created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget, RunSpec
from dramaturg.api.generation.v1.generation_service_pb2 import (
    FEATURE_STATUS_FAILED,
    FEATURE_STATUS_NOT_SUPPORTED,
    PROVIDER_FEATURE_USAGE,
    ProviderCheck,
)
from dramaturg.database import StoreError
from dramaturg.datasets import DatasetError, DatasetLimitError
from dramaturg.judge.roles import AUTHOR, EDGES
from dramaturg.service.auth.caller import current
from dramaturg.service.errors import ServiceError, Violation, invalid, invalid_fields
from dramaturg.service.threads import IsStopped, gather_all, until_cancelled
from gateway.evaluations.kinds import run_kind
from gateway.evaluations.repeats import check_repeats
from gateway.evaluations.scope import EvaluationContext
from gateway.judges.registry import Judge
from gateway.processes.process import OutOfTimeError, ProcessDiedError, ProcessLimits
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.dataset_process import DatasetThreads, sample_reader
from gateway.runs.records import NewSample
from gateway.runs.store import RunStore
from gateway.runs.store_calls import store_unavailable
from gateway.runs.uploads import ready_dataset

PLANNED_ROWS = 20
"""The first valid rows that are planned."""
READ_ROWS = 200
"""The first rows, valid or not, among which those are sought."""
READ_BYTES = 32 << 20
"""The most bytes, decompressed and decoded, that are read for them."""
READ_BLANK_LINES = 10_000
"""The most blank lines that are read for them."""
READ_CPU_SECONDS = 10
"""The most processor time that a process takes to read them."""

BATCH_KINDS = "those of the kinds openai, anthropic and google have one, Vertex AI excepted"
_UNAVAILABLE = error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE
_REFUSED = {
    error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN: grpc.StatusCode.FAILED_PRECONDITION,
    error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED: grpc.StatusCode.FAILED_PRECONDITION,
    error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED: grpc.StatusCode.FAILED_PRECONDITION,
    error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID: grpc.StatusCode.FAILED_PRECONDITION,
    error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}
"""The reasons for which a run is refused, with the codes of the refusal."""


class ModelUse(NamedTuple):
    """A model that a run calls through a judge."""

    judge: Judge
    model: str
    """Empty: the judge's default."""


class Preflight:
    """Refuses runs of which no sample could be evaluated.

    Judges that do not answer are no reason to refuse a run: they may be restarting.

    Args:
        context: The judges.
        access: The datasets that may be read.
        limits: The limits of a process that reads a dataset.
        store: The run store.
    """

    def __init__(
        self, context: EvaluationContext, access: DatasetAccess, limits: ProcessLimits, store: RunStore
    ) -> None:
        self._context = context
        self._store = store
        self._access = replace(
            access,
            max_rows=READ_BLANK_LINES,
            max_bytes=READ_BYTES if access.max_bytes is None else min(READ_BYTES, access.max_bytes),
        )
        self._limits = replace(limits, cpu_seconds=READ_CPU_SECONDS)
        self._threads = DatasetThreads()

    async def check(self, spec: RunSpec) -> None:
        """Plans the first rows of a spec that carries them, and checks its models.

        Nothing is bought, but for a call of at most 16 tokens to each model of which it is not known whether
        its answers state token counts, if the budget needs them.

        Raises:
            ServiceError: No row could be planned, with the error of the first, or none is found within the
                limits of this module; a model cannot be called, with the words of its provider; or the budget
                limits the cost or the tokens, and the price of a model is unknown or its answers state no
                token counts; or model calls are to wait for batches, and the provider of a model has none.
        """
        uses = await self._uses(spec)
        budget = spec.budget
        limited = bool(budget.max_cost_usd or budget.max_token_count)
        check_usage = limited and not budget.estimate_unreported_usage
        checks = await gather_all([self._check_model(use, check_usage=check_usage) for use in uses])
        known = [check for check in checks if check is not None]
        violations = list(_unkeepable(budget, known))
        live = [check for check in known if not check.HasField("batch_price_share")]
        if spec.HasField("batch_then_live") and live:
            said = f"has models whose provider has no batch API here: {_names(live)}; {BATCH_KINDS}"
            violations.append(Violation("spec.batch_then_live", said))
        if violations:
            raise invalid_fields(violations)

    async def _uses(self, spec: RunSpec) -> Sequence[ModelUse]:
        """The models that the run calls, as far as they are known before its rows are read."""
        first, content = RunSpec(), spec.dataset.content
        first.CopyFrom(spec)
        first.dataset.row_limit = min(spec.dataset.row_limit or READ_ROWS, READ_ROWS)
        threads = partial(self._threads.of(first, content), current().tenant)
        try:
            rows = await until_cancelled(threads, self._first_rows, first, content)
        except StoreError as error:
            raise store_unavailable(error) from error
        return list(dict.fromkeys([*self._named(spec), *self._planned(spec, rows)]))

    def _first_rows(self, is_stopped: IsStopped, first: RunSpec, content: bytes) -> Sequence[NewSample]:
        source = first.dataset.WhichOneof("source")
        if source == "uri":
            return ()
        if source == "dataset_id":
            dataset = ready_dataset(self._store, first.dataset.dataset_id, current().tenant)
            # A row that ends beyond is not valid, and Parquet cannot be read in part.
            content = next(self._store.datasets.content(dataset), b"")
            first.dataset.format = first.dataset.format or dataset.format
        first.dataset.content = b"carried apart"
        rows: list[NewSample] = []
        try:
            for sample in sample_reader(first, content, self._access, self._limits, is_stopped):
                if sample.failure is None:
                    rows.append(sample)
                if len(rows) == PLANNED_ROWS:
                    break
        except (DatasetLimitError, OutOfTimeError) as error:
            if not rows:
                why = f"{error} before its first valid row, and no more is read of a new run"
                raise invalid(f"spec.dataset.{source}", f"{why}: begin it with a valid row") from error
        except (DatasetError, ProcessDiedError):
            pass  # The run reports these errors.
        return rows

    def _named(self, spec: RunSpec) -> Iterator[ModelUse]:
        """The judges that the spec names, with their models, and the models under test."""
        registry = self._context.registry
        for selection in spec.judges:
            name = selection.judge
            judge = registry.find(selection.role, name) if name else registry.default(selection.role)
            writes = selection.role in _WRITERS and spec.models
            # The members of a panel are those of planned rows.
            if judge is not None and judge.entry.panel is None and not writes:
                yield ModelUse(judge, selection.model or spec.options.model)
        named = {selection.role: selection.judge for selection in spec.judges if selection.judge}
        author = (
            registry.find(AUTHOR.name, named[AUTHOR.name])
            if AUTHOR.name in named
            else registry.default(AUTHOR.name)
        )
        if author is not None:
            for model in spec.models:
                yield ModelUse(author, model)

    def _planned(self, spec: RunSpec, rows: Sequence[NewSample]) -> Sequence[ModelUse]:
        """The judges and models of the first row that can be planned.

        Raises:
            ServiceError: No row can be.
        """
        kind = run_kind(spec)
        refused: tuple[int, ServiceError] | None = None
        for row in rows:
            request: Any = kind.request_type.FromString(row.request)
            kind.apply_spec(request, spec)
            try:
                check_repeats(request.options, kind.roles)
                accepted = kind.plan_row(request, spec, self._context).accepted()
            except ServiceError as error:
                refused = refused or (row.line, error)
                continue
            models = [*getattr(request, "models", ())]
            uses = []
            for selection in accepted.judges:
                judge = self._context.registry.find(selection.role, selection.judge)
                under_test = models if selection.role in _WRITERS else ()
                if judge is not None:
                    uses += [ModelUse(judge, model) for model in under_test or [selection.model]]
            return uses
        if refused is not None:
            line, refusal = refused
            where = f"spec.dataset: line {line}"
            raise ServiceError(
                refusal.code,
                refusal.reason,
                f"no row can be evaluated; line {line}: {refusal.message}",
                metadata=refusal.metadata,
                violations=[Violation(f"{where}: {field}", why) for field, why in refusal.violations],
            )
        return ()

    async def _check_model(self, use: ModelUse, *, check_usage: bool) -> ProviderCheck | None:
        judge = use.judge
        try:
            check = await self._context.directory.check_model(judge, use.model, check_usage=check_usage)
        except ServiceError as error:
            if error.reason == error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN:
                raise _refusal(judge, error.reason, error.message) from error
            return None
        for found in () if check is None else check.features:
            if found.feature == PROVIDER_FEATURE_USAGE and found.reason == _UNAVAILABLE:
                continue  # One failed call says nothing of the run.
            if found.status == FEATURE_STATUS_FAILED and found.reason in _REFUSED:
                raise _refusal(judge, found.reason, f"{found.detail}. {found.remedy}".strip())
        return check


_WRITERS = frozenset({AUTHOR.name, EDGES.name})
"""The roles that call the models under test."""


def _unkeepable(budget: RunBudget, checks: Sequence[ProviderCheck]) -> Iterator[Violation]:
    """The limits of a budget that cannot be kept with these models."""
    unpriced = [check for check in checks if not check.HasField("prompt_usd_per_million")]
    if budget.max_cost_usd and unpriced:
        said = (
            f"needs the price of each model, and that of {_names(unpriced)} is unknown: name a price table "
            "under `prices` in the settings of the provider, or limit max_token_count"
        )
        yield Violation("spec.budget.max_cost_usd", said)
    uncounted = [
        check
        for check in checks
        for found in check.features
        if found.feature == PROVIDER_FEATURE_USAGE and found.status == FEATURE_STATUS_NOT_SUPPORTED
    ]
    if not uncounted:
        return
    for field, value in (("max_cost_usd", budget.max_cost_usd), ("max_token_count", budget.max_token_count)):
        if value:
            said = (
                f"needs the token counts of each answer, and {_names(uncounted)} states none: set "
                "estimate_unreported_usage (--set budget.estimate_unreported_usage=true) to count upper "
                "bounds, or limit max_provider_call_count"
            )
            yield Violation(f"spec.budget.{field}", said)


def _names(checks: Sequence[ProviderCheck]) -> str:
    return ", ".join(dict.fromkeys(f"{check.provider}/{check.model}" for check in checks))


def _refusal(judge: Judge, reason: ErrorReason.ValueType, words: str) -> ServiceError:
    return ServiceError(
        _REFUSED[reason],
        reason,
        f"the judge {judge.name!r} of {judge.role.name} cannot call its model: {words}",
        metadata={"role": judge.role.name, "judge": judge.name},
    )
