"""Writes results as the evaluate commands do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_UNPARSABLE,
    ABSTAIN_REASON_UNSPECIFIED,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult

_OUTCOMES = {True: OUTCOME_PASS, False: OUTCOME_FAIL, None: OUTCOME_ABSTAIN}


def scripts_result(task: str, verdicts: Mapping[str, Mapping[str, bool | None]]) -> ScriptsResult:
    """The result of a task.

    Args:
        task: Its id.
        verdicts: By candidate and criterion: whether it passed; ``None``: an abstention.
    """
    result = ScriptsResult()
    result.task.id = task
    for candidate, by_criterion in verdicts.items():
        one = result.candidates.add(candidate_id=candidate, model=candidate)
        for criterion, passed in by_criterion.items():
            reason = ABSTAIN_REASON_UNPARSABLE if passed is None else ABSTAIN_REASON_UNSPECIFIED
            one.verdicts.add(criterion=criterion, outcome=_OUTCOMES[passed], abstain_reason=reason)
    return result


def write_results(folder: Path, results: Iterable[Any], failed: Sequence[str] = ()) -> str:
    """Writes a folder of results, and the samples that failed; returns its path."""
    folder.mkdir(parents=True)
    lines = (json.dumps(MessageToDict(result)) + "\n" for result in results)
    (folder / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    errors = ({"task_id": name, "code": "UNAVAILABLE", "tags": {}} for name in failed)
    (folder / "errors.jsonl").write_text("".join(json.dumps(one) + "\n" for one in errors), encoding="utf-8")
    return str(folder)
