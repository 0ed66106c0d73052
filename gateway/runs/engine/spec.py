"""Applies the spec of a run to the rows of its dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from typing import Any

from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import (
    GOLD_ANSWER_SOURCE_GIVEN,
    EvaluateScriptsRequest,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import (
    DecisionsRunOptions,
    DialoguesRunOptions,
    GraphsRunOptions,
    RunSpec,
    ScriptsRunOptions,
    TextsRunOptions,
)
from dramaturg.api.evaluation.v1.texts_pb2 import CompareTextsRequest
from dramaturg.judge.roles import AUTHOR
from gateway.runs.datasets import REQUESTS


def request_type(spec: RunSpec) -> type[Message]:
    """The request type of the rows of a run."""
    return REQUESTS[str(spec.WhichOneof("evaluation"))]


def apply_spec(request: Any, spec: RunSpec, repeat_offset: int = 0) -> None:
    """Sets the fields of a row that the spec sets; all others keep the values of the row.

    Judges replace those that the row names for the same roles. Models are those of the row and of the run
    without duplicates; texts have none, and those of scripts write first (``authoring``).

    Args:
        request: The row, of ``request_type(spec)``, changed in place.
        spec: The spec of the run.
        repeat_offset: Added to the repeat index, so that a rerun requests new completions.
    """
    writes = isinstance(request, EvaluateScriptsRequest)
    _set_judges(request.judges, [one for one in spec.judges if not (writes and one.role == AUTHOR.name)])
    _set_options(request.options, spec, repeat_offset)
    if spec.models and hasattr(request, "models"):
        request.models.extend(model for model in dict.fromkeys(spec.models) if model not in request.models)
    name = str(spec.WhichOneof("evaluation"))
    _BY_EVALUATION[name](request, getattr(spec, name))
    if isinstance(request, EvaluateDialoguesRequest):
        _set_dialogue_sampling(request, spec)


def writing_options(spec: RunSpec, model: str, repeat_offset: int) -> JudgeOptions:
    """The options of a script request to a model under test."""
    options = JudgeOptions(model=model, repeat_index=spec.options.repeat_index + repeat_offset)
    if spec.scripts.HasField("writing_sampling"):
        options.sampling.CopyFrom(spec.scripts.writing_sampling)
    _set_seed(options, spec)
    return options


def _set_judges(judges: MutableSequence[JudgeSelection], wanted: Sequence[JudgeSelection]) -> None:
    if not wanted:
        return
    roles = {selection.role for selection in wanted}
    kept = [selection for selection in judges if selection.role not in roles]
    del judges[:]
    judges.extend([*kept, *wanted])


def _set_options(options: JudgeOptions, spec: RunSpec, repeat_offset: int) -> None:
    if spec.options.model:
        options.model = spec.options.model
    if spec.options.HasField("sampling"):
        options.sampling.CopyFrom(spec.options.sampling)
    options.repeat_index = (spec.options.repeat_index or options.repeat_index) + repeat_offset
    _set_seed(options, spec)


def _set_seed(options: JudgeOptions, spec: RunSpec) -> None:
    if not spec.HasField("seed") or options.sampling.HasField("seed"):
        return
    if not options.HasField("sampling"):
        # Absent sampling means temperature 0; sampling with a seed alone does not.
        options.sampling.temperature = 0
    options.sampling.seed = spec.seed


def _set_scripts(request: EvaluateScriptsRequest, options: ScriptsRunOptions) -> None:
    if options.mechanism:
        request.mechanism = options.mechanism
    if options.gold_answer_source:
        request.gold_answer_source = options.gold_answer_source
        if options.gold_answer_source != GOLD_ANSWER_SOURCE_GIVEN:
            request.ClearField("gold_answer")


def _set_texts(request: CompareTextsRequest, options: TextsRunOptions) -> None:
    if options.HasField("roles"):
        request.roles.CopyFrom(options.roles)
    if options.order:
        request.order = options.order
    if options.baselines:
        request.baselines[:] = options.baselines


def _set_graphs(request: EvaluateGraphsRequest, options: GraphsRunOptions) -> None:
    for field in ("task", "method", "cycle_policy", "distance_mode", "reduce"):
        if value := getattr(options, field):
            setattr(request, field, value)


def _set_decisions(request: EvaluateDecisionsRequest, options: DecisionsRunOptions) -> None:
    if options.prompts:
        request.prompts[:] = options.prompts
    if options.option_order:
        request.option_order = options.option_order
    if options.demonstrations:
        del request.demonstrations[:]
        request.demonstrations.extend(options.demonstrations)


def _set_dialogues(request: EvaluateDialoguesRequest, options: DialoguesRunOptions) -> None:
    if options.pairs:
        del request.pairs[:]
        request.pairs.extend(options.pairs)
    if options.ratings_omitted:
        request.ratings_omitted = True
    if options.HasField("sampling"):
        request.sampling.CopyFrom(options.sampling)


def _set_dialogue_sampling(request: EvaluateDialoguesRequest, spec: RunSpec) -> None:
    """Applies the sampling of the run to replies; that of the options is for judges."""
    if spec.options.HasField("sampling") and not spec.dialogues.HasField("sampling"):
        request.sampling.CopyFrom(spec.options.sampling)
    if spec.HasField("seed") and not request.sampling.HasField("seed"):
        # The author sets its own temperature if sampling has none.
        request.sampling.seed = spec.seed


_BY_EVALUATION: Mapping[str, Callable[[Any, Any], None]] = {
    "scripts": _set_scripts,
    "texts": _set_texts,
    "graphs": _set_graphs,
    "decisions": _set_decisions,
    "dialogues": _set_dialogues,
}
