"""Servers for the length of a test: judges with scripted verdicts, a gateway."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_NOT_APPLICABLE,
    OUTCOME_PASS,
    READING_EMPTY,
    Assessment,
    UnitVerdict,
    Verdict,
)
from dramaturg.api.judging.v1 import judge_service_pb2, judge_service_pb2_grpc
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest, JudgeResponse
from dramaturg.judge.batches import decode_candidate
from dramaturg.judge.contracts import requested_criteria, require_unique_ids
from dramaturg.judge.conversations import units_of
from dramaturg.judge.criteria import SATISFIES_CONSTRAINTS
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.judge.roles import JUDGE_CONTRACT
from dramaturg.judge.verdicts import abstained, empty_candidate, of_units, passed, scored
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, to_error_status
from dramaturg.service.installed import AppClass, UnknownServiceError, find_app, settings_type
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings

T = TypeVar("T")


@asynccontextmanager
async def serve(*contracts: Contract, **settings: Any) -> AsyncIterator[Server]:
    """Serves contracts on a free port of this machine, in plain text. The server's ``target`` is its address.

    Args:
        contracts: What is served.
        settings: Fields of ``dramaturg.service.settings.ServerSettings``.
    """
    async with Server(contracts, ServerSettings.loopback(**settings)) as server:
        yield server


@contextmanager
def in_thread(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enters an asynchronous context manager in a thread with an event loop, for tests without one.

    Tests that are asynchronous themselves use ``async with`` instead: gRPC's servers and asynchronous
    channels work best in one event loop a process.

    Example:
        >>> with in_thread(serve(FakeJudge().contract())) as server:
        ...     stub = JudgeServiceStub(grpc.insecure_channel(server.target))

    Args:
        manager: For example that of ``serve`` or ``serve_gateway``.
    """
    entered: Future[T] = Future()
    loop, leave = asyncio.new_event_loop(), asyncio.Event()

    async def hold() -> None:
        try:
            async with manager as value:
                entered.set_result(value)
                await leave.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    held: Future[None] = Future()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(hold())
        except BaseException as error:
            held.set_exception(error)
        else:
            held.set_result(None)

    thread = threading.Thread(target=work, name="dramaturg-testing", daemon=True)
    thread.start()
    try:
        yield entered.result()
    finally:
        if not held.done():
            loop.call_soon_threadsafe(leave.set)
        thread.join()
        held.result()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Waits until a condition holds.

    Args:
        condition: Is asked every 5 ms.
        seconds: The longest wait.

    Raises:
        TimeoutError: The condition does not hold in time.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.005)


async def as_ready(works: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[T]:
    """Runs coroutines side by side and yields their results, each as soon as it is there."""
    tasks = {asyncio.ensure_future(work) for work in works}
    pending = tasks
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in tasks:
            task.cancel()


Judgement: TypeAlias = "Assessment | Sequence[Verdict] | ServiceError"
"""An assessment as it is sent, the verdicts of one, or an error."""
Judge: TypeAlias = "Callable[[JudgeRequest, JudgeCandidate], Judgement | Awaitable[Judgement]]"
"""Judges one candidate of a request."""


class FakeJudge(judge_service_pb2_grpc.JudgeServiceServicer):
    """Serves ``judging.v1.JudgeService`` as scripted and records every request.

    It keeps the contract: unknown criteria and repeated ids are refused, empty candidates have their defined
    verdicts, and verdicts have a provenance and the reading of the candidate. An assessment of the script is
    sent as it is.

    Example:
        >>> judge = FakeJudge(lambda request, candidate: [failed("fluent")], criteria=["fluent"])
        >>> async with serve(judge.contract()) as server, open_channel(server.target) as channel:
        ...     responses = [one async for one in JudgeServiceStub(channel).Judge(request)]
        >>> assert judge.requests == [request]

    Args:
        judge: Judges one candidate that is not empty; a ``ServiceError`` that it returns or raises is that
            candidate's error. Default: every criterion passes, or has the
            highest score of its scale, or passes for each turn or call; satisfies_constraints abstains where
            there are none.
        name: The judge's name.
        version: Its version.
        criteria: The criteria that its identity lists; others are refused. Default: "fluent", and any other
            criterion by the capability "any-criterion".
        capabilities: The capabilities that its identity lists.
        delay: Seconds before each response. The candidates of a request wait side by side.

    Attributes:
        requests: The requests, in order of arrival.
    """

    def __init__(
        self,
        judge: Judge | None = None,
        *,
        name: str = "fake-judge",
        version: str = "1.0.0",
        criteria: Iterable[str] | None = None,
        capabilities: Iterable[str] = (),
        delay: float = 0.0,
    ) -> None:
        self.requests: list[JudgeRequest] = []
        self._judge = judge or self._passes
        self._name = name
        self._version = version
        self._criteria = ("fluent",) if criteria is None else tuple(criteria)
        any_criterion = (ANY_CRITERION,) if criteria is None else ()
        self._capabilities = tuple(dict.fromkeys((*capabilities, *any_criterion)))
        self._delay = delay

    def contract(self) -> Contract:
        """What a server serves."""
        return Contract.make(
            judge_service_pb2.DESCRIPTOR.services_by_name["JudgeService"],
            judge_service_pb2_grpc.add_JudgeServiceServicer_to_server,
            self,
            name=self._name,
            version=self._version,
            description="Judges as scripted.",
            criteria=self._criteria,
            capabilities=self._capabilities,
        )

    async def Judge(self, request: JudgeRequest, context: Any) -> AsyncIterator[JudgeResponse]:
        """Judges the candidates of a request, each as soon as its judgement is there."""
        del context
        self.requests.append(request)
        criteria = requested_criteria(request, self._criteria, self._capabilities)
        require_unique_ids(request)
        async with aclosing(
            as_ready(self._respond(request, one, criteria) for one in request.candidates)
        ) as responses:
            async for response in responses:
                yield response

    async def _respond(
        self, request: JudgeRequest, candidate: JudgeCandidate, criteria: Sequence[str]
    ) -> JudgeResponse:
        response = JudgeResponse(candidate_id=candidate.id)
        reading = decode_candidate(candidate).reading
        try:
            judgement: Any = (
                empty_candidate(criteria) if reading == READING_EMPTY else self._judge(request, candidate)
            )
            if self._delay:
                await asyncio.sleep(self._delay)
            if inspect.isawaitable(judgement):
                judgement = await judgement
            if isinstance(judgement, ServiceError):
                raise judgement
        except ServiceError as error:
            response.error.CopyFrom(to_error_status(error))
            return response
        if not isinstance(judgement, Assessment):
            provenance = Provenance(name=self._name, version=self._version, contract=JUDGE_CONTRACT)
            judgement = Assessment(verdicts=judgement, provenance=provenance, reading=reading)
        response.assessment.CopyFrom(judgement)
        return response

    def _passes(self, request: JudgeRequest, candidate: JudgeCandidate) -> Judgement:
        asked = request.criteria or [Criterion(id=one) for one in self._criteria]
        return [_best(one, request, candidate) for one in asked]


def _best(criterion: Criterion, request: JudgeRequest, candidate: JudgeCandidate) -> Verdict:
    if criterion.each and (places := units_of(candidate.conversation, criterion.each)):
        units = [UnitVerdict(turn_index=turn, call_index=call, outcome=OUTCOME_PASS) for turn, call in places]
        return of_units(criterion.id, units)
    if criterion.HasField("scale"):
        return scored(criterion.id, criterion.scale.highest, rationale="Fine.")
    if criterion.id == SATISFIES_CONSTRAINTS and not request.task.constraints:
        return abstained(criterion.id, ABSTAIN_REASON_NOT_APPLICABLE, "There are no constraints.")
    return passed(criterion.id, rationale="Fine.")


_SHORT = {"drain_grace_seconds": 0.2}  # a test that ends does not need the calls in progress


class PlatformMissingError(ImportError):
    """The gateway is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "a gateway needs the services, which the wheel does not contain: install them from a clone of "
            "the repository (pip install -e '.[platform]')"
        )


@dataclass(frozen=True)
class RegisteredJudge:
    """A judge of a gateway."""

    role: str
    """The role that it serves, such as "critic"."""
    judge: Contract | str
    """What it is, served together with the gateway; or the address of a running judge."""
    name: str = "fake"
    """Its name, unique within the role."""
    default: bool = False
    """Whether it serves the role where a request names no judge. The only judge of a role always does."""


@asynccontextmanager
async def serve_gateway(
    *judges: RegisteredJudge, runs: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Server]:
    """Serves a gateway and its judges on this machine and yields the gateway's server.

    ``in_thread`` serves it for tests that are not asynchronous.

    Args:
        judges: The judges.
        runs: Fields of the section ``runs`` of the settings. None: it has no runs.
        settings: Fields of the section ``gateway``.

    Raises:
        PlatformMissingError: The extra ``platform`` is not installed.
    """
    app: Any = _gateway_app()
    async with AsyncExitStack() as stack:
        entries = []
        for one in judges:
            target = one.judge
            if isinstance(target, Contract):
                target = (await stack.enter_async_context(serve(target, **_SHORT))).target
            entries.append({"role": one.role, "name": one.name, "target": target, "default": one.default})
        made = app(
            settings=settings_type(app)(**{"judges": entries, "identity_timeout_seconds": 3, **settings}),
            runs=settings_type(app, "runs").model_validate({"enabled": False} if runs is None else runs),
        )
        contracts = await stack.enter_async_context(made.open())
        yield await stack.enter_async_context(serve(*contracts, **_SHORT))


def _gateway_app() -> AppClass:
    try:
        return find_app("gateway")
    except UnknownServiceError:
        raise PlatformMissingError from None
    except ModuleNotFoundError as error:
        raise PlatformMissingError from error
