"""The view of a sample of any kind."""

from __future__ import annotations

from dataclasses import replace

from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_FAILED, RunSample
from dramaturg.kinds import sample_kind
from dramaturg.report.views.model import SampleView
from dramaturg.results.coverage import status_name


def view(sample: RunSample) -> SampleView:
    """The view of a sample. A sample without a result is shown with its error."""
    kind = sample_kind(sample)
    if kind is not None:
        shown = kind.view(sample.index, getattr(sample, kind.results.name))
        return replace(shown, filters=[*shown.filters, *sample.tags.items()])
    error = sample.error
    where = f"{error.field}: " if error.field else ""
    return SampleView(
        index=sample.index,
        title=sample.sample_id or f"line {sample.line}",
        sample_id=sample.sample_id,
        error=f"{status_name(error.code)}: {where}{error.message}" if error.code else "no result",
        tags=sorted(sample.tags.items()),
        failed=sample.state == SAMPLE_STATE_FAILED,
    )
