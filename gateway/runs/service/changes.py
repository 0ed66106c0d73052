"""Creates, changes and deletes runs in the store, and notifies the engine.

The update mask of UpdateRunRequest follows AIP-134.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Protocol

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_OUTCOME_UNSPECIFIED,
    RUN_STATE_PREPARING,
    RunOutcome,
    RunSpec,
    RunState,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import UpdateRunRequest
from dramaturg.service.auth.caller import current
from dramaturg.service.errors import ServiceError, Violation, invalid, invalid_fields
from gateway.evaluations.kinds import RUN_KINDS, run_kind
from gateway.judges.registry import Registry
from gateway.judges.selection import check_selections, judge_unknown
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.records import ACTIVE, NewRun, RunRecord
from gateway.runs.service.messages import RunLookup, wrong_state
from gateway.runs.store import RequestIdReusedError, RunStore
from gateway.runs.store_calls import ServiceCaller


def check_spec(spec: RunSpec, registry: Registry) -> None:
    """Refuses a spec with which no row could be evaluated.

    Args:
        spec: The spec, within the limits of the contract.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN.
    """
    if found := list(_violations(spec, registry)):
        raise invalid_fields([Violation(f"spec.{field}", description) for field, description in found])
    for index, selection in enumerate(spec.judges):
        if selection.judge and registry.find(selection.role, selection.judge) is None:
            raise judge_unknown(selection.role, selection.judge, registry, f"spec.judges[{index}].judge")


def _violations(spec: RunSpec, registry: Registry) -> Iterator[Violation]:
    if spec.WhichOneof("evaluation") is None:
        yield Violation("evaluation", f"is required: one of {', '.join(RUN_KINDS)}")
        return
    kind = run_kind(spec)
    yield from kind.check_models(spec.models)
    own = registry.configured_roles if kind.accepts_configured_roles else ()
    yield from check_selections(spec.judges, (*kind.roles, *own), registry.roles)
    if spec.policy.HasField("sample_timeout") and spec.policy.sample_timeout.ToNanoseconds() <= 0:
        yield Violation("policy.sample_timeout", "must be above 0")
    if spec.HasField("batch_then_live"):
        yield from _batch_violations(spec)
    yield from kind.check_spec(spec)


def _batch_violations(spec: RunSpec) -> Iterator[Violation]:
    lane = spec.batch_then_live
    if lane.HasField("deadline") and lane.deadline.ToNanoseconds() <= 0:
        yield Violation("batch_then_live.deadline", "must be above 0")
    if spec.budget.max_cost_usd or spec.budget.max_token_count or spec.budget.max_provider_call_count:
        said = (
            "cannot be kept with batch_then_live: batches are sent before their cost is known. Leave one out"
        )
        yield Violation("budget", said)


_PARTS = ("limits", "budget")
"""The messages that the request has in common with the spec."""
_ALL = "*"
MAX_MODELS = 100
"""The most models of a run."""


def update_paths(request: UpdateRunRequest) -> Sequence[str]:
    """The fields that a request sets, each as "limits.priority".

    Without a mask these are the fields of its messages that have a value.

    Raises:
        ServiceError: INVALID_ARGUMENT: the mask names an unknown field.
    """
    mask = request.update_mask.paths
    if not mask:
        return [f"{part}.{field.name}" for part in _PARTS for field, _ in getattr(request, part).ListFields()]
    unknown = [path for path in mask if not list(_expand(path))]
    if unknown:
        known = ", ".join([_ALL, *_PARTS, *_expand(_ALL)])
        raise invalid_fields(
            [Violation("update_mask", f"names {path!r}; the fields are {known}") for path in unknown]
        )
    return list(dict.fromkeys(field for path in mask for field in _expand(path)))


def updated_spec(spec: RunSpec, request: UpdateRunRequest, paths: Sequence[str]) -> RunSpec:
    """A copy of a spec with the fields of a request. A field that is absent in the request is cleared."""
    updated = RunSpec()
    updated.CopyFrom(spec)
    for path in paths:
        part, _, field = path.partition(".")
        source: Message = getattr(request, part)
        target: Message = getattr(updated, part)
        if any(descriptor.name == field for descriptor, _ in source.ListFields()):
            setattr(target, field, getattr(source, field))
        else:
            target.ClearField(field)
    return updated


def _expand(path: str) -> Iterator[str]:
    """The fields that a path of a mask names; none if it is unknown."""
    for part in _PARTS:
        message: Message = getattr(UpdateRunRequest(), part)
        for field in message.DESCRIPTOR.fields:
            if path in {_ALL, part, f"{part}.{field.name}"}:
                yield f"{part}.{field.name}"


class Engine(Protocol):
    """The engine as RunService uses it. The store holds the pending work."""

    async def submit(self, run_id: str) -> None:
        """Starts the current attempt of a run that was created or begun again. Idempotent."""


class RunChanges:
    """Changes runs, and returns them as changed.

    Args:
        store: The run store.
        engine: Executes runs.
        caller: Calls the store.
        lookup: Reads runs again after concurrent changes.
        notifier: Notifies the engine and the streams in this process of changes of runs.
    """

    def __init__(
        self,
        store: RunStore,
        engine: Engine,
        caller: ServiceCaller,
        lookup: RunLookup,
        notifier: ChangeNotifier,
    ) -> None:
        self._store = store
        self._engine = engine
        self._caller = caller
        self._lookup = lookup
        self._notifier = notifier

    async def create(self, request: pb.CreateRunRequest, tenant: str) -> RunRecord:
        """Creates the run of a valid request and starts it.

        Raises:
            ServiceError: ALREADY_EXISTS: the request id was used for another run.
        """
        try:
            run, _ = await self._caller.call(self._store.runs.create, _new_run(request, tenant))
        except RequestIdReusedError as error:
            raise _request_id_reused(request.request_id) from error
        if run.state == RUN_STATE_PREPARING:  # also if an earlier call created it and failed before this
            await self._engine.submit(run.id)
        return run

    async def update(self, run: RunRecord, request: pb.UpdateRunRequest) -> RunRecord:
        """Sets the limits and the budget that a request names, in any state of the run.

        Raises:
            ServiceError: INVALID_ARGUMENT: its mask names an unknown field; NOT_FOUND: the run was deleted
                meanwhile.
        """
        paths = update_paths(request)
        while True:
            spec = updated_spec(run.spec, request, paths)
            updated = await self._caller.call(self._store.runs.update_spec, run.id, spec, expected=run.spec)
            if updated is not None:
                self._notifier.notify(run.id)
                return updated
            # Another call changed the spec meanwhile.
            run = await self._lookup.find(run.id, run.tenant)

    async def change_state(
        self,
        run: RunRecord,
        to: RunState.ValueType,
        expected: Collection[RunState.ValueType],
        wanted: str,
        outcome: RunOutcome.ValueType = RUN_OUTCOME_UNSPECIFIED,
    ) -> RunRecord:
        """Changes the state. A run that has it already is unchanged.

        Args:
            run: The run.
            to: The new state.
            expected: The states from which it is reached.
            wanted: The condition that these states express, for the error.
            outcome: The outcome in the new state.

        Raises:
            ServiceError: FAILED_PRECONDITION: the run is in another state.
        """
        if run.state == to:
            return run
        changed = await self._caller.call(
            self._store.runs.change_state, run.id, to, expected=expected, outcome=outcome
        )
        if changed is None:
            raise wrong_state(await self._lookup.find(run.id, run.tenant), wanted)
        self._notifier.notify(run.id)
        return changed

    async def begin_again(
        self,
        run: RunRecord,
        scope: pb.RerunScope.ValueType,
        *,
        spec: RunSpec | None = None,
        fresh: bool = False,
    ) -> RunRecord:
        """Begins a new attempt of an ended run for some of its samples.

        Raises:
            ServiceError: FAILED_PRECONDITION: the run has not ended.
        """
        begun = await self._caller.call(self._store.attempts.begin, run.id, scope, spec=spec, fresh=fresh)
        if begun is None:
            raise wrong_state(run, "has ended")
        self._notifier.notify(begun.id)
        await self._engine.submit(begun.id)
        return begun

    async def extend(self, run: RunRecord, added: Sequence[str]) -> RunRecord:
        """Adds models under test to an ended run, and begins a new attempt for all samples.

        Raises:
            ServiceError: INVALID_ARGUMENT: the models do not fit the run; FAILED_PRECONDITION: the run has
                not ended.
        """
        if found := list(run_kind(run.spec).check_models(added)):
            raise invalid_fields(found)
        models = list(dict.fromkeys([*run.spec.models, *added]))
        if len(models) > MAX_MODELS:
            raise invalid("models", f"gives the run {len(models)} models; the limit is {MAX_MODELS}")
        if run.state in ACTIVE:
            raise wrong_state(run, "has ended")
        if len(models) == len(run.spec.models):
            return run
        spec = RunSpec()
        spec.CopyFrom(run.spec)
        spec.models[:] = models
        return await self.begin_again(run, pb.RERUN_SCOPE_ALL, spec=spec)

    async def delete(self, run: RunRecord) -> None:
        """Deletes an ended run.

        Raises:
            ServiceError: FAILED_PRECONDITION: the run has not ended.
        """
        if run.state in ACTIVE:
            raise wrong_state(run, "has ended")
        await self._caller.call(self._store.runs.delete, run.id)
        self._notifier.notify(run.id)


def new_id() -> str:
    """A readable run id that sorts by age, for example "20260131-120000-9f3a1c2b54"."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(5)}"


def _new_run(request: pb.CreateRunRequest, tenant: str) -> NewRun:
    """The run of a request. Its content is separate, since specs are listed often."""
    spec = RunSpec()
    spec.CopyFrom(request.spec)
    content = spec.dataset.content
    if spec.dataset.WhichOneof("source") == "content":
        spec.dataset.content = b""
    return NewRun(
        id=new_id(),
        tenant=tenant,
        spec=spec,
        content=content,
        request_id=request.request_id,
        version=version("dramaturg"),
        creator=current().principal,
    )


def _request_id_reused(request_id: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.ALREADY_EXISTS,
        error_reason_pb2.ERROR_REASON_REQUEST_ID_REUSED,
        f"the request id {request_id!r} was used for a run with another spec",
        metadata={"request_id": request_id},
    )
