"""Applies the judges and options of a run to requests."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec


def set_judges(judges: MutableSequence[JudgeSelection], wanted: Sequence[JudgeSelection]) -> None:
    """Replaces the judges of the roles that the wanted ones have."""
    if not wanted:
        return
    roles = {selection.role for selection in wanted}
    kept = [selection for selection in judges if selection.role not in roles]
    del judges[:]
    judges.extend([*kept, *wanted])


def set_judge_options(options: JudgeOptions, spec: RunSpec, repeat_offset: int) -> None:
    """Sets the members of the options that the run sets.

    Args:
        options: The options of a row, changed in place.
        spec: The spec of the run.
        repeat_offset: Added to the repeat index.
    """
    if spec.options.model:
        options.model = spec.options.model
    if spec.options.HasField("sampling"):
        options.sampling.CopyFrom(spec.options.sampling)
    options.repeat_index = (spec.options.repeat_index or options.repeat_index) + repeat_offset
    set_seed(options, spec)


def set_seed(options: JudgeOptions, spec: RunSpec) -> None:
    """Sets the seed of the run unless the options have one."""
    if not spec.HasField("seed") or options.sampling.HasField("seed"):
        return
    if not options.HasField("sampling"):
        # Absent sampling means temperature 0; sampling with a seed alone does not.
        options.sampling.temperature = 0
    options.sampling.seed = spec.seed
