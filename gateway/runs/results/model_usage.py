"""The usage of each model under test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.judge.provenance import total_usage
from gateway.evaluations.kinds import result_kind


def usage_by_model(samples: Iterable[RunSample]) -> Mapping[str, Usage]:
    """The usage of samples for each model.

    Excludes usage that models share: gold answers, roles, comparisons.
    """
    spent: dict[str, list[Usage]] = {}
    for sample in samples:
        if (kind := result_kind(sample)) is None:
            continue
        for model, provenance in kind.model_provenances(getattr(sample, kind.results.name)):
            spent.setdefault(model, []).append(provenance.usage)
    return {model: total_usage(usages) for model, usages in spent.items()}
