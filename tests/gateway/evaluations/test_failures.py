"""What results say of the failures of judges."""

from __future__ import annotations

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_JUDGE_UNAVAILABLE
from dramaturg.judge.roles import ROLES
from dramaturg.service.errors import ServiceError
from gateway.evaluations.failures import of_error

TOKEN = "k-0123456789abcdef"


@pytest.mark.parametrize(
    "message",
    [
        f"no such caller: (('authorization', 'Bearer {TOKEN}'), ('x-request-id', 'r'))",
        f"illegal metadata x-api-key: {TOKEN}",
        f"{'x' * 300} Authorization: Bearer {TOKEN * 50}",
    ],
)
def test_the_error_of_a_judge_is_kept_without_the_token_that_it_quotes(message: str) -> None:
    error = ServiceError(
        grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_UNSPECIFIED, f"{message}\nat 10.0.0.7:50051"
    )
    failure = of_error(error, ROLES["critic"])
    assert failure.reason == ABSTAIN_REASON_JUDGE_UNAVAILABLE
    assert "k-0123" not in failure.explanation
    assert "[key]" in failure.explanation
    assert "10.0.0.7" not in failure.explanation
