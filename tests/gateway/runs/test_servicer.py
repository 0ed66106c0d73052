"""Whole runs are read in another process, and an error there is that of the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import SummarizeRequest
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from tests.hostile.gateway import public_gateway
from tests.support.processes import worker_processes


async def read(stream: Any) -> bytes:
    return b"".join([piece.chunk async for piece in stream])


@pytest.mark.slow
async def test_runs_are_read_in_another_process(tmp_path: Path) -> None:
    async with public_gateway(tmp_path, worker_processes=2) as gateway:
        runs: Any = RunServiceStub(gateway.hostile)
        evaluations: Any = EvaluationServiceStub(gateway.hostile)
        run_id = gateway.run_ids[0]
        assert not worker_processes()
        found = (await runs.GetSummary(pb.GetSummaryRequest(run_id=run_id))).summary
        assert found.sample_count == 1
        (worker,) = worker_processes()
        assert (await runs.GetLeaderboard(pb.GetLeaderboardRequest(run_id=run_id))).final
        with pytest.raises(grpc.aio.AioRpcError, match="the run has") as raised:
            await runs.GetLeaderboard(pb.GetLeaderboardRequest(run_id=run_id, measure="none"))
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        report = await read(runs.GetReport(pb.GetReportRequest(run_id=run_id)))
        assert report.startswith(b"<!doctype html>")
        assert report.rstrip().endswith(b"</html>")
        for form, begin in {
            pb.EXPORT_FORMAT_JSONL: b"{",
            pb.EXPORT_FORMAT_CSV: b"sample",
            pb.EXPORT_FORMAT_PARQUET: b"PAR1",
            pb.EXPORT_FORMAT_SAMPLES_JSONL: b"{",
        }.items():
            content = await read(runs.ExportResults(pb.ExportResultsRequest(run_id=run_id, format=form)))
            assert content.startswith(begin)
        # The judge of the role alignment answers with empty messages.
        compared = await runs.CompareRuns(pb.CompareRunsRequest(run_ids=gateway.run_ids))
        assert not compared.flip_count
        samples = (await runs.ListSamples(pb.ListSamplesRequest(run_id=run_id))).samples
        given = [SummarizeRequest(options=SummaryOptions()), SummarizeRequest(samples=samples)]
        assert (await evaluations.Summarize(given)).summary.judgement_count == found.judgement_count
        assert worker_processes() == [worker]
        with pytest.raises(grpc.aio.AioRpcError, match="the only field of the first message"):
            await evaluations.Summarize(given[1:])
        with pytest.raises(grpc.aio.AioRpcError, match="absent after the first message"):
            await evaluations.Summarize([given[0], given[0]])
