"""The kind ``graphs`` of ``dramaturg eval``."""

from __future__ import annotations

from functools import partial

from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.kinds.decisions import command as decisions

USED = decisions.USED
"""The options of the kind."""

evaluate = partial(
    decisions.evaluate,
    request=EvaluateGraphsRequest,
    roles=("author", "edges", "graph", "embedding", "rubric-judge"),
)
"""Evaluates graphs. Arguments and errors are those of the kind ``decisions``."""
