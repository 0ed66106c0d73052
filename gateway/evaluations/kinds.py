"""The registry of evaluation kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from gateway.evaluations.decisions.kind import DecisionsKind
from gateway.evaluations.dialogues.kind import DialoguesKind
from gateway.evaluations.graphs.kind import GraphsKind
from gateway.evaluations.kind import EvaluationKind, RunKind
from gateway.evaluations.pairs.kind import PairsKind
from gateway.evaluations.scenarios.kind import ScenariosKind
from gateway.evaluations.scripts.kind import ScriptsKind
from gateway.evaluations.simulations.kind import SimulationsKind
from gateway.evaluations.summary import KindSummary
from gateway.evaluations.texts.kind import TextsKind

KINDS: Sequence[EvaluationKind] = (
    ScriptsKind(),
    PairsKind(),
    GraphsKind(),
    DecisionsKind(),
    SimulationsKind(),
    ScenariosKind(),
    DialoguesKind(),
    TextsKind(),
)
"""All kinds."""

BY_REQUEST: Mapping[type[Message], EvaluationKind] = {kind.request_type: kind for kind in KINDS}
"""The kinds by the type of their request."""

RUN_KINDS: Mapping[str, RunKind] = {kind.name: kind for kind in KINDS if isinstance(kind, RunKind)}
"""The kinds of runs by the member of ``RunSpec.evaluation``."""

SUMMARIES: Mapping[str, KindSummary] = {kind.results.name: kind.summary for kind in RUN_KINDS.values()}
"""How samples are summarised, by the member of ``RunSample.result``."""

_BY_RESULT: Mapping[str, RunKind] = {kind.results.name: kind for kind in RUN_KINDS.values()}


def run_kind(spec: RunSpec) -> RunKind:
    """The kind of a run whose spec has one."""
    return RUN_KINDS[str(spec.WhichOneof("evaluation"))]


def result_kind(sample: Any) -> RunKind | None:
    """The kind of the result of a ``RunSample``; None if it has none."""
    return _BY_RESULT.get(sample.WhichOneof("result") or "")
