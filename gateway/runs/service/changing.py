"""Changes runs: what they are to do in the store, of which the engine is told."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PREPARING, RunSpec, RunState
from dramaturg.service.errors import invalid, invalid_fields
from gateway.runs.engine.bells import Bells
from gateway.runs.records import ACTIVE, NewRun, RunRecord
from gateway.runs.service.background import Background
from gateway.runs.service.creating import request_id_reused
from gateway.runs.service.engine import Engine
from gateway.runs.service.errors import wrong_state
from gateway.runs.service.finding import Finder
from gateway.runs.service.validation import check_models
from gateway.runs.store.base import RequestIdReusedError, RunStore

MOST_MODELS = 100
"""The most models of a run."""


class Changes:
    """Changes runs that were found, and returns them as they are then.

    Args:
        store: Where they are kept.
        engine: Who works on them.
        background: Where the store is asked.
        finder: Finds them again, where others change them at the same time.
        bells: Ring for a run that changed.
    """

    def __init__(
        self, store: RunStore, engine: Engine, background: Background, finder: Finder, bells: Bells
    ) -> None:
        self._store = store
        self._engine = engine
        self._background = background
        self._finder = finder
        self._bells = bells

    async def create(self, wanted: NewRun) -> RunRecord:
        """Keeps a run and has it worked on.

        Raises:
            ServiceError: ALREADY_EXISTS: its request id made another run.
        """
        try:
            run, _ = await self._background.call(self._store.create_run, wanted)
        except RequestIdReusedError as error:
            raise request_id_reused(wanted.request_id) from error
        if run.state == RUN_STATE_PREPARING:  # also where an earlier call created it and got no further
            await self._engine.submit(run.id)
        return run

    async def update(self, run: RunRecord, request: pb.UpdateRunRequest) -> RunRecord:
        """Sets the limits and the budget that a request has, whatever the run's state.

        Raises:
            ServiceError: NOT_FOUND: it was deleted meanwhile.
        """
        while True:
            spec = RunSpec()
            spec.CopyFrom(run.spec)
            for field in ("limits", "budget"):
                if request.HasField(field):
                    getattr(spec, field).CopyFrom(getattr(request, field))
            updated = await self._background.call(self._store.update_spec, run.id, spec, expected=run.spec)
            if updated is not None:
                await self._wake(run.id)
                return updated
            # Somebody else changed the spec meanwhile.
            run = await self._finder.find(run.id, run.tenant)

    async def change_state(
        self,
        run: RunRecord,
        to: RunState.ValueType,
        expected: Collection[RunState.ValueType],
        wanted: str,
    ) -> RunRecord:
        """Changes the state. Where it is that already, a call before this one did it, and it is done.

        Args:
            run: The run.
            to: The new state.
            expected: The states from which it is reached.
            wanted: What a run in one of these is, in words.

        Raises:
            ServiceError: FAILED_PRECONDITION: the run is in another state.
        """
        if run.state == to:
            return run
        changed = await self._background.call(self._store.change_state, run.id, to, expected=expected)
        if changed is None:
            raise wrong_state(await self._finder.find(run.id, run.tenant), wanted)
        await self._wake(run.id)
        return changed

    async def begin_again(
        self,
        run: RunRecord,
        scope: pb.RerunScope.ValueType,
        *,
        spec: RunSpec | None = None,
        fresh: bool = False,
    ) -> RunRecord:
        """Begins some samples of a run that has ended anew.

        Raises:
            ServiceError: FAILED_PRECONDITION: it has not ended.
        """
        begun = await self._background.call(self._store.begin_again, run.id, scope, spec=spec, fresh=fresh)
        if begun is None:
            raise wrong_state(run, "has ended")
        self._bells.ring(begun.id)
        await self._engine.submit(begun.id)
        return begun

    async def extend(self, run: RunRecord, added: Sequence[str]) -> RunRecord:
        """Adds models under test to a run that has ended, and begins its samples anew.

        Raises:
            ServiceError: INVALID_ARGUMENT: they do not fit the run; FAILED_PRECONDITION: it has not ended.
        """
        if found := list(check_models(run.spec.WhichOneof("evaluation"), added)):
            raise invalid_fields(found)
        models = list(dict.fromkeys([*run.spec.models, *added]))
        if len(models) > MOST_MODELS:
            raise invalid("models", f"gives the run {len(models)} models; {MOST_MODELS} are the most")
        if run.state in ACTIVE:
            raise wrong_state(run, "has ended")
        if len(models) == len(run.spec.models):
            return run
        spec = RunSpec()
        spec.CopyFrom(run.spec)
        spec.models[:] = models
        return await self.begin_again(run, pb.RERUN_SCOPE_ALL, spec=spec)

    async def delete(self, run: RunRecord) -> None:
        """Deletes a run that has ended.

        Raises:
            ServiceError: FAILED_PRECONDITION: it has not.
        """
        if run.state in ACTIVE:
            raise wrong_state(run, "has ended")
        await self._background.call(self._store.delete_run, run.id)
        self._bells.ring(run.id)

    async def _wake(self, run_id: str) -> None:
        self._bells.ring(run_id)
        await self._engine.wake(run_id)
