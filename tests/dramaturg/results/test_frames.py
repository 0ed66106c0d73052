"""Judgements as rows, tables and frames: what is absent is None or null."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.files import FileResults
from dramaturg.results.frames import COLUMNS, ResultRow, ResultStream, arrow_table, pandas_frame
from tests.support.results import scripts_result, write_results


def results(folder: Path) -> FileResults:
    first = scripts_result("t1", {"a": {"executable": True}, "b": {"executable": None}})
    first.tags["level"] = "hard"
    second = scripts_result("t2", {"a": {"executable": False}})
    second.tags["topic"] = "food"
    return FileResults(write_results(folder, [first, second]))


def test_an_absent_value_is_none(tmp_path: Path) -> None:
    passed, abstained, failed = results(tmp_path / "out")
    assert (passed.value, abstained.value, failed.value) == (1.0, None, 0.0)
    assert (passed.confidence, passed.provenance) == (None, None)
    assert (abstained.model, abstained.measure, abstained.message.value) == ("b", "executable", 0.0)
    assert ResultRow(RunResult(model="b")) == ResultRow(RunResult(model="b"))
    with pytest.raises(AttributeError, match="RunResult has no field 'valu'"):
        _ = passed.valu


def test_a_table_has_a_row_for_each_judgement_and_nulls(tmp_path: Path) -> None:
    table = results(tmp_path / "out").to_arrow()
    assert table.column_names == [*COLUMNS, "tags.level", "tags.topic"]
    assert table["value"].to_pylist() == [1.0, None, 0.0]
    assert table["abstain_reason"].to_pylist() == [None, "UNPARSABLE", None]
    assert table["tags.level"].to_pylist() == ["hard", "hard", None]
    assert table["tags.topic"].to_pylist() == [None, None, "food"]
    assert str(table.schema.field("value").type) == "double"
    assert arrow_table([]).num_rows == 0


def test_means_of_a_frame_leave_abstentions_out(tmp_path: Path) -> None:
    frame = results(tmp_path / "out").to_pandas()
    assert frame["value"].isna().tolist() == [False, True, False]
    assert frame["value"].mean() == 0.5
    assert frame["value"].count() == 2
    assert pandas_frame([]).empty


async def test_a_stream_is_read_row_by_row_or_as_a_table() -> None:
    async def rows() -> AsyncGenerator[RunResult]:
        for value in (None, 0.0, 1.0):
            yield RunResult(value=value)

    stream = ResultStream(rows())
    assert (await anext(stream)).value is None
    assert [row.value async for row in stream] == [0.0, 1.0]
    assert (await ResultStream(rows()).to_arrow())["value"].to_pylist() == [None, 0.0, 1.0]
    frame = await ResultStream(rows()).to_pandas()
    assert frame["value"].isna().tolist() == [True, False, False]


@pytest.mark.parametrize(("missing", "method"), [("pyarrow", "arrow_table"), ("pandas", "pandas_frame")])
def test_the_libraries_are_imported_on_use_and_the_error_names_the_extra(missing: str, method: str) -> None:
    program = f"""
import sys
import dramaturg.client, dramaturg.results.files
from dramaturg.results import frames
assert not {{"pandas", "pyarrow"}} & sys.modules.keys()
sys.modules["{missing}"] = None
try:
    frames.{method}([])
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"need {missing}: install the extra dramaturg[frames]" in done.stdout
