"""A tenant that cancels its calls: the work ends, and no thread of another tenant is taken."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.service.threads import IsStopped, StoppedError
from dramaturg.testing import until
from gateway.runs.dataset_process import IsolatedSampleReader, sample_reader
from gateway.runs.datasets import SampleReader
from tests.hostile.gateway import public_gateway
from tests.support.bombs import GOOD_LINE

SECONDS = 60.0
ENDLESS = b'{"task": {"goal": "endless"}}\n'


class Reader:
    """Makes readers of datasets, which read ENDLESS until their caller has gone."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self._tick = threading.Event()

    def __call__(
        self, spec: RunSpec, content: bytes, access: Any, limits: Any, is_stopped: IsStopped
    ) -> SampleReader | IsolatedSampleReader:
        if content != ENDLESS:
            return sample_reader(spec, content, access, limits, is_stopped)
        self.begun += 1
        while not is_stopped():
            self._tick.wait(0.01)
        self.ended += 1
        raise StoppedError


@pytest.mark.timeout(120)
@pytest.mark.parametrize("method", ["EstimateRun", "CreateRun"])
async def test_a_cancelled_read_of_a_dataset_ends_and_holds_up_no_other_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    reader = Reader()
    monkeypatch.setattr("gateway.runs.estimator.sample_reader", reader)
    monkeypatch.setattr("gateway.runs.service.preflight.sample_reader", reader)

    def call(channel: Any, content: bytes) -> Any:
        spec = RunSpec(dataset=Dataset(content=content))
        spec.scripts.SetInParent()
        if method == "EstimateRun":
            return EvaluationServiceStub(channel).EstimateRun(EstimateRunRequest(spec=spec), timeout=SECONDS)
        return RunServiceStub(channel).CreateRun(pb.CreateRunRequest(spec=spec), timeout=SECONDS)

    async with public_gateway(tmp_path) as gateway:
        calls = [call(gateway.hostile, ENDLESS) for _ in range(4)]
        await until(lambda: reader.begun >= 1)
        await call(gateway.good, GOOD_LINE)
        assert reader.begun == 1
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: reader.ended == reader.begun)
        calls = [call(gateway.hostile, ENDLESS) for _ in range(4)]
        await until(lambda: reader.begun > reader.ended)
        await call(gateway.good, GOOD_LINE)
        assert reader.begun == reader.ended + 1
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: reader.ended == reader.begun)
