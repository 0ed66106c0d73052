from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING, RunSample, RunSpec
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import TenantThreads
from gateway.quotas.turns import SHARE
from gateway.runs.records import NewRun
from gateway.runs.service.pages import RunPages, fill_page, key_of, next_token
from gateway.runs.store_calls import ServiceCaller
from tests.gateway.runs.service.conftest import Service, fault

ids = st.text(min_size=1, max_size=20)
NAMES = st.text(st.characters(categories=["L", "N", "P"]), max_size=40)


@given(ids, st.integers(0, 2**62), NAMES, st.integers(1, 1000))
def test_a_token_leads_back_to_its_key(run_id: str, index: int, name: str, size: int) -> None:
    asked = pb.ListResultsRequest(run_id=run_id, filter=pb.ResultFilter(models=["m"]))
    token = next_token(asked, [index, name])
    assert len(token) <= 500
    following = pb.ListResultsRequest(
        run_id=run_id, filter=pb.ResultFilter(models=["m"]), page_size=size, page_token=token
    )
    assert key_of(following, int, str) == [index, name]


@given(st.text(min_size=1, max_size=500))
def test_an_invalid_token_is_refused(text: str) -> None:
    with pytest.raises(ServiceError, match="page_token"):
        key_of(pb.ListResultsRequest(run_id="r", page_token=text), int, int)


@pytest.mark.parametrize(
    "other",
    [
        pb.ListResultsRequest(run_id="other"),
        pb.ListResultsRequest(run_id="run", filter=pb.ResultFilter(models=["m"])),
        pb.ListResultsRequest(run_id="run", numbers_only=True),
        pb.ListSamplesRequest(run_id="run"),
    ],
)
def test_a_token_is_of_no_use_with_another_request(
    other: pb.ListResultsRequest | pb.ListSamplesRequest,
) -> None:
    other.page_token = next_token(pb.ListResultsRequest(run_id="run"), [1, 2])
    with pytest.raises(ServiceError, match="another run or filter"):
        key_of(other, int, int)


def test_a_key_of_another_kind_is_refused() -> None:
    asked = pb.ListResultsRequest(run_id="run")
    asked.page_token = next_token(asked, [1, "two"])
    with pytest.raises(ServiceError, match="not a token"):
        key_of(asked, int, int)


@pytest.mark.parametrize("number", [2**63, 10**30, -2])
def test_an_integer_that_no_store_has_is_refused(number: int) -> None:
    request = pb.ListResultsRequest(run_id="run")
    request.page_token = next_token(request, [number, 0])
    with pytest.raises(ServiceError, match="not a token"):
        key_of(request, int, int)


@pytest.mark.parametrize("text", ["\ud800", "run\0"])
async def test_a_token_with_a_text_that_no_store_takes_is_an_invalid_argument(
    service: Service, text: str
) -> None:
    request = pb.ListRunsRequest()
    request.page_token = next_token(request, [1, text])
    error = await fault(service.stub.ListRuns(request))
    assert (error.code, error.violations[0].field) == (grpc.StatusCode.INVALID_ARGUMENT, "page_token")


@pytest.mark.parametrize("number", [2**62, 2**63 - 1, 2**63, 10**300])
async def test_a_token_with_a_large_integer_is_an_invalid_argument(service: Service, number: int) -> None:
    service.run(RUN_STATE_RUNNING)
    runs = pb.ListRunsRequest()
    runs.page_token = next_token(runs, [number, "run"])
    samples = pb.ListSamplesRequest(run_id="run")
    samples.page_token = next_token(samples, [number])
    results = pb.ListResultsRequest(run_id="run")
    results.page_token = next_token(results, [0, number])
    error = await fault(service.stub.ListRuns(runs))
    assert (error.code, error.violations[0].field) == (grpc.StatusCode.INVALID_ARGUMENT, "page_token")
    for call in (service.stub.ListSamples(samples), service.stub.ListResults(results)):
        if number < 2**63:
            assert not (await call).next_page_token
        else:
            error = await fault(call)
            assert (error.code, error.violations[0].field) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "page_token",
            )


@pytest.mark.parametrize("others", [True, False])
async def test_a_long_page_leaves_time_to_other_tenants(
    others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    class Results:
        def page(self, run_id: str, **query: Any) -> list[Any]:
            end = time.thread_time() + 0.02
            while time.thread_time() < end:
                pass
            return []

    threads = TenantThreads()
    caller = ServiceCaller(threads)
    store: Any = SimpleNamespace(results=Results())
    run: Any = NewRun(id="run", tenant="a", spec=RunSpec())
    monkeypatch.setattr(asyncio, "sleep", note)
    pages = RunPages(store, caller, lambda tenant: others and tenant == "a")
    await pages.results(run, pb.ListResultsRequest(run_id="run", page_size=10))
    assert slept == []
    await pages.results(run, pb.ListResultsRequest(run_id="run", page_size=100))
    assert len(slept) == others
    assert all(0.02 / SHARE - 0.02 <= seconds < 1 for seconds in slept)
    caller.close()
    threads.close()


@pytest.mark.parametrize("limit", [0, 1, 25, 60, 1000])
async def test_pages_within_a_size_have_every_item_once(limit: int) -> None:
    items = [RunSample(index=index, sample_id="x" * (index % 7 * 10)) for index in range(40)]

    async def read(after: int, count: int, max_bytes: int) -> list[tuple[int, RunSample]]:
        found = []
        for item in items[after + 1 :][:count]:
            found.append((item.index, item))
            max_bytes -= item.ByteSize()
            if max_bytes < 0:
                break
        return found

    seen: list[int] = []
    after: int | None = -1
    while after is not None:
        page = await fill_page(read, after, 15, max_bytes=limit)
        assert len(page.items) == 1 or sum(item.ByteSize() for item in page.items) <= limit
        seen += [item.index for item in page.items]
        after = page.last
    assert seen == [*range(40)]
