"""The columns of tables of judgements: exports and frames have the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.names import outcome_name, reason_name

COLUMNS: Mapping[str, Callable[[RunResult], Any]] = {
    "sample_index": lambda result: result.sample_index,
    "sample_id": lambda result: result.sample_id,
    "model": lambda result: result.model,
    "candidate_id": lambda result: result.candidate_id,
    "measure": lambda result: result.measure,
    "outcome": lambda result: outcome_name(result.outcome) or None,
    "abstain_reason": lambda result: reason_name(result.abstain_reason) or None,
    "failure_reason": lambda result: reason_name(result.failure_reason) or None,
    "value": lambda result: result.value if result.HasField("value") else None,
    "confidence": lambda result: result.confidence if result.HasField("confidence") else None,
    "measured_confidence": lambda result: (
        result.measured_confidence if result.HasField("measured_confidence") else None
    ),
    "label": lambda result: result.label,
    "role": lambda result: result.role,
    "judge": lambda result: result.judge,
    "rationale": lambda result: result.rationale,
    "findings": lambda result: compact_json([MessageToDict(finding) for finding in result.findings] or None),
    "provenance": lambda result: compact_json(
        MessageToDict(result.provenance) if result.HasField("provenance") else None
    ),
}
"""The columns of a table of judgements before those of tags, with their values. None: absent."""


def header(tags: Sequence[str]) -> list[str]:
    """The names of all columns.

    Args:
        tags: The tags with a column "tags.<name>".
    """
    return [*COLUMNS, *(f"tags.{tag}" for tag in tags)]


def table_row(result: RunResult, tags: Sequence[str]) -> list[Any]:
    """The cells of a judgement: those of COLUMNS, then one for each tag."""
    return [*(cell(result) for cell in COLUMNS.values()), *(result.tags.get(tag) for tag in tags)]


def arrow_schema(pyarrow: Any, tags: Sequence[str]) -> Any:
    """The schema of a table of judgements: numbers, and text for all other columns.

    Args:
        pyarrow: The module, which is imported only where it is used.
        tags: The tags with a column.
    """
    numbers = {
        "sample_index": pyarrow.uint64(),
        **dict.fromkeys(("value", "confidence", "measured_confidence"), pyarrow.float64()),
    }
    return pyarrow.schema([(name, numbers.get(name, pyarrow.string())) for name in header(tags)])


def compact_json(value: Any) -> str | None:
    """JSON without spaces. None: None."""
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
