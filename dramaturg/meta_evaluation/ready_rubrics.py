"""The labelled set of the ready rubrics: texts and conversations that meet or break each criterion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict

from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.formats.rubric import ready_rubrics
from dramaturg.judge.roles import RUBRIC_JUDGE
from dramaturg.judge.rubrics import encode_criterion
from dramaturg.meta_evaluation.case import CANDIDATE, Case

_FILE = Path(__file__).parent / "ready_rubrics_set.json"


class ReadyRubricSet:
    """Five or six labelled texts for each ready rubric. No criterion is worded to do better on them."""

    def __init__(self) -> None:
        self._content = _FILE.read_bytes()
        self._data: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(self._content)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the set, in lower-case hexadecimal."""
        return hashlib.sha256(self._content).hexdigest()

    def cases(self, judges: Sequence[str] = (RUBRIC_JUDGE.name,)) -> list[Case]:
        """The cases, in a fixed order; none where the rubric judge is not among the judges."""
        if RUBRIC_JUDGE.name not in judges:
            return []
        return [_case(name, data) for name, texts in self._data.items() for data in texts]


def _case(rubric: str, data: Mapping[str, Any]) -> Case:
    candidate = JudgeCandidate(
        id=CANDIDATE,
        text=data.get("text", ""),
        context=[Document(text=one) for one in data.get("context", ())],
    )
    if "conversation" in data:
        ParseDict({"turns": data["conversation"]}, candidate.conversation)
    request = JudgeRequest(
        task=Task(goal=data["goal"], instructions=data.get("instructions", "")),
        candidates=[candidate],
        criteria=map(encode_criterion, ready_rubrics()[rubric].criteria),
    )
    return Case(RUBRIC_JUDGE.name, f"{rubric}/{data['id']}", request, data["faults"], rubric=rubric)
