from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.service.errors import ServiceError
from gateway.runs.service.pages import key_of, next_token

ids = st.text(min_size=1, max_size=20)


@given(ids, st.integers(0, 2**62), st.text(max_size=40), st.integers(1, 1000))
def test_a_token_leads_back_to_its_key(run_id: str, index: int, name: str, size: int) -> None:
    asked = pb.ListResultsRequest(run_id=run_id, filter=pb.ResultFilter(models=["m"]))
    token = next_token(asked, [index, name])
    assert len(token) <= 500
    following = pb.ListResultsRequest(
        run_id=run_id, filter=pb.ResultFilter(models=["m"]), page_size=size, page_token=token
    )
    assert key_of(following, int, str) == [index, name]


@given(st.text(min_size=1, max_size=500))
def test_what_is_no_token_is_refused(text: str) -> None:
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
    with pytest.raises(ServiceError, match="no token"):
        key_of(asked, int, int)
