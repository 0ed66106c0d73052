from __future__ import annotations

import csv
import io
import json
import sys

import grpc
import pandas as pd
import pyarrow.parquet as pq
import pytest
from google.protobuf.json_format import Parse

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING, RUN_STATE_SUCCEEDED, SAMPLE_STATE_SUCCEEDED
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.results.means import mean_of_sums
from gateway.runs.service import pages
from tests.dramaturg.report.samples import shown_samples
from tests.gateway.runs.service.conftest import Service, fault
from tests.support.runs import TIMED_OUT, failed, judged


def fill(service: Service, count: int = 40) -> None:
    """Samples of two models: the first is right on all, the second on two of three, if not silent."""
    service.run(RUN_STATE_RUNNING, samples=count + 1)
    outcomes = [
        judged(
            index, {"best": [True, True, True], "worse": [index % 3 > 0, TIMED_OUT if index % 4 else True]}
        )
        for index in range(count)
    ]
    outcomes[0].sample.scripts.candidates[0].verdicts[0].rationale = 'a "quoted", line\nand another; =1+1'
    service.store.attempts.finish("run", 1, [*outcomes, failed(count)])


async def all_results(service: Service, **request: object) -> list[RunResult]:
    asked = pb.ListResultsRequest(**{"run_id": "run", **request})  # type: ignore[arg-type] # any field
    found: list[RunResult] = []
    while True:
        page = await service.stub.ListResults(asked)
        found += page.results
        if not page.next_page_token:
            return found
        asked.page_token = page.next_page_token


async def test_judgements_are_paged(service: Service) -> None:
    fill(service)
    found = await all_results(service, page_size=7)
    assert [(r.sample_index, r.measure, r.model) for r in found] == [
        (index, measure, model)
        for index in range(40)
        for model, measures in (("best", ("c0", "c1", "c2")), ("worse", ("c0", "c1")))
        for measure in measures
    ]
    assert found == await all_results(service, page_size=10000)
    only = await all_results(service, page_size=7, filter=pb.ResultFilter(abstain_reasons=[TIMED_OUT]))
    assert only == [result for result in found if result.abstain_reason == TIMED_OUT]
    assert len(only) == 30


async def test_a_page_has_its_default_size(service: Service) -> None:
    fill(service)
    page = await service.stub.ListResults(pb.ListResultsRequest(run_id="run"))
    assert len(page.results) == 100
    samples = await service.stub.ListSamples(pb.ListSamplesRequest(run_id="run", page_size=41))
    assert len(samples.samples) == 41
    assert not samples.next_page_token


async def test_a_page_ends_before_it_is_too_large(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(service)
    monkeypatch.setattr(pages.fill_page, "__kwdefaults__", {"max_bytes": 2000})
    asked = pb.ListSamplesRequest(run_id="run", states=[SAMPLE_STATE_SUCCEEDED])
    seen: list[int] = []
    while True:
        page = await service.stub.ListSamples(asked)
        assert len(page.samples) == 1 or sum(sample.ByteSize() for sample in page.samples) <= 2000
        seen += [sample.index for sample in page.samples]
        if not page.next_page_token:
            break
        asked.page_token = page.next_page_token
    assert seen == list(range(40))


async def test_models_are_ranked(service: Service) -> None:
    fill(service)
    board = await service.stub.GetLeaderboard(pb.GetLeaderboardRequest(run_id="run"))
    assert (board.measure, board.final) == ("", False)
    best, worse = board.entries
    assert (best.model, best.rank, best.mean, best.upper) == ("best", 1, 1.0, 1.0)
    assert best.lower == pytest.approx(0.025 ** (1 / 40))  # Clopper and Pearson
    assert (best.judged_count, best.judgement_count, best.sample_count) == (120, 120, 40)
    assert (worse.judged_count, worse.judgement_count, worse.rank) == (50, 80, 2)
    assert worse.coverage == pytest.approx(50 / 80)
    assert dict(worse.abstentions_by_reason) == {"TIMED_OUT": 30}
    assert worse.means_by_measure["c0"] == pytest.approx(26 / 40)
    (sums,) = (
        sums for sums in service.store.results.model_sums("run", together=True) if sums.model == "worse"
    )
    assert (worse.mean, worse.lower, worse.upper) == pytest.approx(mean_of_sums(sums, 0.0, 1.0)[1:])
    assert worse.usage.prompt_token_count == 200
    by_one = await service.stub.GetLeaderboard(pb.GetLeaderboardRequest(run_id="run", measure="c2"))
    assert [entry.model for entry in by_one.entries] == ["best"]
    error = await fault(service.stub.GetLeaderboard(pb.GetLeaderboardRequest(run_id="run", measure="c9")))
    assert error.violations[0].field == "measure"
    assert "c0, c1, c2" in error.message


async def test_the_board_of_a_run_without_results_is_empty_and_final_when_it_ended(service: Service) -> None:
    service.run(RUN_STATE_SUCCEEDED)
    board = await service.stub.GetLeaderboard(pb.GetLeaderboardRequest(run_id="run", measure="c0"))
    assert (list(board.entries), board.final) == ([], True)


async def export(
    service: Service, form: pb.ExportFormat.ValueType, where: pb.ResultFilter | None = None
) -> bytes:
    request = pb.ExportResultsRequest(run_id="run", format=form, filter=where)
    return b"".join([piece.chunk async for piece in service.stub.ExportResults(request)])


async def test_an_export_in_json_lines_equals_the_list(service: Service) -> None:
    fill(service)
    text = (await export(service, pb.EXPORT_FORMAT_UNSPECIFIED)).decode()
    assert [Parse(line, RunResult()) for line in text.splitlines()] == await all_results(service)


async def test_an_export_in_csv_is_read_back(service: Service) -> None:
    fill(service)
    data = await export(service, pb.EXPORT_FORMAT_CSV)
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    found = await all_results(service)
    assert len(rows) == len(found)
    for row, result in zip(rows, found, strict=True):
        assert (int(row["sample_index"]), row["sample_id"], row["model"], row["measure"]) == (
            result.sample_index,
            result.sample_id,
            result.model,
            result.measure,
        )
        assert row["value"] == (str(result.value) if result.HasField("value") else "")
        assert row["abstain_reason"] == ("TIMED_OUT" if result.abstain_reason else "")
        assert row["outcome"] in {"PASS", "FAIL", "ABSTAIN"}
        assert row["rationale"] == result.rationale
        assert row["tags.level"] == result.tags["level"]
        assert json.loads(row["provenance"])["name"] == "critic"
    frame = pd.read_csv(io.BytesIO(data))
    assert frame.groupby("model")["value"].mean()["best"] == 1.0
    assert frame["value"].isna().sum() == 30


async def test_an_export_in_parquet_has_the_same_columns(service: Service) -> None:
    fill(service)
    data = await export(service, pb.EXPORT_FORMAT_PARQUET)
    table = pq.read_table(io.BytesIO(data))
    found = await all_results(service)
    header = next(csv.reader(io.StringIO((await export(service, pb.EXPORT_FORMAT_CSV)).decode())))
    assert table.column_names == header
    assert table["sample_index"].to_pylist() == [result.sample_index for result in found]
    assert table["value"].to_pylist() == [r.value if r.HasField("value") else None for r in found]
    assert table["tags.level"].to_pylist() == [result.tags["level"] for result in found]
    assert pd.read_parquet(io.BytesIO(data))["value"].sum() == 156


async def test_an_export_is_filtered(service: Service) -> None:
    fill(service)
    data = await export(service, pb.EXPORT_FORMAT_CSV, pb.ResultFilter(models=["best"], measures=["c1"]))
    assert len(data.decode().splitlines()) == 41


async def test_an_export_of_samples_is_that_of_the_evaluate_commands(service: Service) -> None:
    fill(service)
    lines = (await export(service, pb.EXPORT_FORMAT_SAMPLES_JSONL)).decode().splitlines()
    results = [Parse(line, ScriptsResult()) for line in lines]
    assert len(results) == 40
    assert results[7].candidates[0].model == "best"
    filtered = pb.ExportResultsRequest(
        run_id="run", format=pb.EXPORT_FORMAT_SAMPLES_JSONL, filter=pb.ResultFilter(models=["best"])
    )
    error = await fault(service.stub.ExportResults(filtered))
    assert error.violations[0].field == "filter"


async def test_parquet_needs_its_extra(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.run(RUN_STATE_RUNNING)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    request = pb.ExportResultsRequest(run_id="run", format=pb.EXPORT_FORMAT_PARQUET)
    error = await fault(service.stub.ExportResults(request))
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert error.reason == error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED
    assert "dramaturg[datasets]" in error.message


async def test_a_run_without_results_exports_tables_without_rows(service: Service) -> None:
    service.run(RUN_STATE_RUNNING)
    assert await export(service, pb.EXPORT_FORMAT_JSONL) == b""
    assert len((await export(service, pb.EXPORT_FORMAT_CSV)).decode().splitlines()) == 1
    assert pq.read_table(io.BytesIO(await export(service, pb.EXPORT_FORMAT_PARQUET))).num_rows == 0


async def test_a_report_is_streamed(service: Service) -> None:
    fill(service)
    request = pb.GetReportRequest(run_id="run", sample_limit=7)
    pieces = [piece.chunk async for piece in service.stub.GetReport(request)]
    page = b"".join(pieces).decode()
    assert page.lower().startswith("<!doctype html>")
    assert "The run has not ended: 0 of 41 samples are not done." in page
    assert "This page has the first 7 of 41 samples." in page
    assert "=1+1" in str(shown_samples(page))
    assert max(map(len, pieces)) <= 1 << 20
