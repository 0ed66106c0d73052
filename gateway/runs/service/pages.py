"""Pages of runs, samples and judgements (AIP-158)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.service.errors import invalid
from gateway.quotas.turns import SHARE
from gateway.runs.records import RunRecord
from gateway.runs.service.messages import describe_all
from gateway.runs.store import RunStore
from gateway.runs.store_calls import ServiceCaller

Item = TypeVar("Item", bound=Message)
Key = TypeVar("Key")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
TokenKey = Sequence[int | str]

MAX_PAGE_BYTES = 1 << 20
"""The size at which a page ends, unless its first item alone is larger."""

MAX_PAGE = 1000
"""The most items of a page of runs, samples or datasets."""
MAX_RESULTS = 10_000
"""The most judgements of a page."""
_DEFAULT_RUNS = 50
_DEFAULT_SAMPLES = 50
_DEFAULT_RESULTS = 100
_READ_AT_ONCE = 100
_MAX_SHORT_READ = 20
"""The most items of a short store call."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_MICROSECONDS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_MAX_INTEGER = (1 << 63) - 1
"""The largest integer of both databases."""


class RunPages:
    """Lists runs and their parts.

    Args:
        store: The run store.
        caller: Calls it.
        has_other_calls: Whether tenants other than the given one make calls.
    """

    def __init__(
        self, store: RunStore, caller: ServiceCaller, has_other_calls: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._store = store
        self._caller = caller
        self._has_other_calls = has_other_calls

    async def runs(self, request: pb.ListRunsRequest, tenant: str) -> pb.ListRunsResponse:
        """A page of a tenant's runs, the newest first."""

        async def read(
            before: tuple[datetime, str] | None, limit: int, max_bytes: int
        ) -> list[tuple[tuple[datetime, str] | None, Run]]:
            del max_bytes
            return await self._caller.call(self._runs, request, tenant, before, limit)

        page = await fill_page(read, _position(request), page_size(request, _DEFAULT_RUNS))
        response = pb.ListRunsResponse(runs=page.items)
        if page.last is not None:
            created, run_id = page.last
            response.next_page_token = next_token(request, [(created - _EPOCH) // _MICROSECOND, run_id])
        return response

    def _runs(
        self, request: pb.ListRunsRequest, tenant: str, before: tuple[datetime, str] | None, limit: int
    ) -> list[tuple[tuple[datetime, str] | None, Run]]:
        runs = self._store.runs.page(
            tenant,
            limit=limit,
            before=before,
            states=list(request.states),
            labels=dict(request.labels),
            ids=list(request.run_ids),
        )
        keys = [(run.create_time, run.id) for run in runs]
        return [*zip(keys, describe_all(runs, self._store), strict=True)]

    async def samples(self, run: RunRecord, request: pb.ListSamplesRequest) -> pb.ListSamplesResponse:
        """A page of a run's samples."""

        async def read(after: int, limit: int, max_bytes: int) -> list[tuple[int, RunSample]]:
            found = await self._read(
                run.tenant,
                limit,
                self._store.samples.page,
                run.id,
                after=after,
                limit=limit,
                states=list(request.states),
                max_bytes=max_bytes,
            )
            return [(sample.index, sample) for sample in found]

        key = key_of(request, int)
        page = await fill_page(read, -1 if key is None else int(key[0]), page_size(request, _DEFAULT_SAMPLES))
        return pb.ListSamplesResponse(
            samples=page.items,
            next_page_token="" if page.last is None else next_token(request, [page.last]),
        )

    async def results(self, run: RunRecord, request: pb.ListResultsRequest) -> pb.ListResultsResponse:
        """A page of a run's judgements."""

        async def read(
            after: tuple[int, int], limit: int, max_bytes: int
        ) -> list[tuple[tuple[int, int], RunResult]]:
            del max_bytes
            found = await self._read(
                run.tenant,
                limit,
                self._store.results.page,
                run.id,
                after=after,
                limit=limit,
                where=request.filter,
                numbers_only=request.numbers_only,
            )
            return list(found)

        key = key_of(request, int, int)
        after = (-1, -1) if key is None else (int(key[0]), int(key[1]))
        page = await fill_page(read, after, page_size(request, _DEFAULT_RESULTS, MAX_RESULTS))
        return pb.ListResultsResponse(
            results=page.items, next_page_token="" if page.last is None else next_token(request, page.last)
        )

    async def _read(
        self,
        tenant: str,
        count: int,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """The result of a store call that reads a number of items. Above 20 it is a long call.

        After a long call beside calls of other tenants, the interpreter is left to them for a while.
        """
        if count <= _MAX_SHORT_READ:
            return await self._caller.call(function, *args, **kwargs)
        computed = 0.0

        def timed() -> Result:
            nonlocal computed
            begun = time.thread_time()
            result = function(*args, **kwargs)
            computed = time.thread_time() - begun
            return result

        found = await self._caller.call_heavy(tenant, timed)
        if self._has_other_calls(tenant):
            await asyncio.sleep(computed / SHARE - computed)
        return found


def page_size(request: Any, default: int, most: int = MAX_PAGE) -> int:
    """The number of items of a page: the one of the request, at most the maximum (AIP-158)."""
    return min(request.page_size or default, most)


class Page(NamedTuple, Generic[Key, Item]):
    """Items in order."""

    items: Sequence[Item]
    last: Key | None
    """The key of the last item if more follow; None at the end."""


async def fill_page(
    read: Callable[[Key, int, int], Awaitable[Sequence[tuple[Key, Item]]]],
    after: Key,
    size: int,
    *,
    max_bytes: int = MAX_PAGE_BYTES,
) -> Page[Key, Item]:
    """Reads a page up to a number of items and of bytes.

    Args:
        read: Reads at most a number of items after a key, each with its own key. It may end with the item by
            which they exceed a number of bytes.
        after: The key before the page.
        size: The most items.
        max_bytes: The most bytes.
    """
    items: list[Item] = []
    total = 0
    while True:
        wanted = min(size + 1 - len(items), _READ_AT_ONCE)
        found = await read(after, wanted, max(max_bytes - total, 0))
        for key, item in found:
            total += item.ByteSize()
            if len(items) == size or (items and total > max_bytes):
                return Page(items, after)
            items.append(item)
            after = key
        if not found or (len(found) < wanted and total <= max_bytes):
            return Page(items, None)


def next_token(request: Any, key: TokenKey) -> str:
    """The token of the page after an item: opaque, and valid only for the same request.

    Args:
        request: The answered request, with ``page_size`` and ``page_token``.
        key: The key of the item.
    """
    packed = json.dumps([_digest(request), *key], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def key_of(request: Any, *kinds: type[int | str]) -> TokenKey | None:
    """The key in the token of a request; None for the first page.

    Args:
        request: The request. Its page size may differ from that of the page before.
        kinds: The types of the members of the key. Integers are at most those of the databases; texts are
            printable, since databases do not take all others.

    Raises:
        ServiceError: INVALID_ARGUMENT: the token is invalid, or belongs to another request.
    """
    token: str = request.page_token
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        unpacked = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        unpacked = None
    fits = (
        isinstance(unpacked, list)
        and len(unpacked) == len(kinds) + 1
        and all(_fits(part, kind) for part, kind in zip(unpacked[1:], kinds, strict=True))
    )
    if not isinstance(unpacked, list) or not fits:
        raise _invalid_token()
    if unpacked[0] != _digest(request):
        raise invalid("page_token", "was given for a request with another run or filter")
    return unpacked[1:]


def _fits(part: Any, kind: type[int | str]) -> bool:
    if type(part) is not kind:
        return False
    return -1 <= part <= _MAX_INTEGER if isinstance(part, int) else bool(part.isprintable())


def _position(request: pb.ListRunsRequest) -> tuple[datetime, str] | None:
    """The creation time and id of the last run of the page before."""
    key = key_of(request, int, str)
    if key is None:
        return None
    microseconds = int(key[0])
    if microseconds > _MAX_MICROSECONDS:
        raise _invalid_token()
    return _EPOCH + microseconds * _MICROSECOND, str(key[1])


def _invalid_token() -> Exception:
    return invalid("page_token", "is not a token of this service")


def _digest(request: Any) -> str:
    """Identifies a request apart from its page."""
    bare = type(request)()
    bare.CopyFrom(request)
    bare.ClearField("page_size")
    bare.ClearField("page_token")
    named = request.DESCRIPTOR.full_name.encode() + bare.SerializeToString(deterministic=True)
    return hashlib.sha256(named).hexdigest()[:16]
