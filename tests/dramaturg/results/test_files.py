from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from dramaturg.results.files import ResultsError, read_results
from tests.dramaturg.report.samples import RESULTS, sample


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_the_kind_of_a_result_is_recognised_by_its_members(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text(json.dumps(MessageToDict(getattr(sample(kind), kind))), encoding="utf-8")
    (read,) = read_results(file)
    assert read.WhichOneof("result") == kind
    assert getattr(read, kind) == getattr(sample(kind), kind)


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "is not JSON"), ("[]", "is not a JSON object"), ("{}", "is not a result")],
)
def test_an_invalid_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(ResultsError, match=message) as caught:
        list(read_results(file))
    assert "some.jsonl:2" in str(caught.value)
