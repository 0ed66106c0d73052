"""Views of samples: one view model for all evaluations, and one builder for each kind."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.views.decisions import decision_view
from dramaturg.report.views.dialogues import dialogue_view
from dramaturg.report.views.graphs import graphs_view
from dramaturg.report.views.model import SampleView
from dramaturg.report.views.scripts import scripts_view
from dramaturg.report.views.texts import texts_view


def view(sample: RunSample) -> SampleView:
    """The view of a sample of any evaluation."""
    match sample.WhichOneof("result"):
        case "scripts":
            return scripts_view(sample.index, sample.scripts)
        case "texts":
            return texts_view(sample.index, sample.texts)
        case "graphs":
            return graphs_view(sample.index, sample.graphs)
        case "decision":
            return decision_view(sample.index, sample.decision)
        case "dialogue":
            return dialogue_view(sample.index, sample.dialogue)
    error = sample.error
    where = f"{error.field}: " if error.field else ""
    return SampleView(
        index=sample.index,
        title=sample.sample_id or f"line {sample.line}",
        sample_id=sample.sample_id,
        error=f"{error.code}: {where}{error.message}" if error.code else "no result",
        tags=sorted(sample.tags.items()),
    )
