"""The registry of kinds of results: how each is flattened, ranked and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.views.decisions import decision_view
from dramaturg.report.views.dialogues import dialogue_view
from dramaturg.report.views.graphs import graphs_view
from dramaturg.report.views.model import SampleView
from dramaturg.report.views.scripts import scripts_view
from dramaturg.report.views.texts import texts_view
from dramaturg.results.decisions import DECISIONS
from dramaturg.results.dialogues import DIALOGUES
from dramaturg.results.graphs import GRAPHS
from dramaturg.results.kind import ResultKind
from dramaturg.results.scripts import SCRIPTS
from dramaturg.results.texts import TEXTS


class Kind(NamedTuple):
    """A kind of evaluation, as the wheel knows it."""

    results: ResultKind
    """Its results."""
    view: Callable[[int, Any], SampleView]
    """Makes the view of a report from the index of a sample and its result."""


KINDS: Sequence[Kind] = (
    Kind(SCRIPTS, scripts_view),
    Kind(TEXTS, texts_view),
    Kind(GRAPHS, graphs_view),
    Kind(DECISIONS, decision_view),
    Kind(DIALOGUES, dialogue_view),
)
"""All kinds with results."""

_BY_NAME: Mapping[str, Kind] = {kind.results.name: kind for kind in KINDS}


def find_kind(name: str | None) -> Kind | None:
    """The kind whose results are this member of ``RunSample.result``. None: there is none."""
    return _BY_NAME.get(name or "")


def sample_kind(sample: RunSample) -> Kind | None:
    """The kind of a sample's result. None: the sample has no result."""
    return find_kind(sample.WhichOneof("result"))
