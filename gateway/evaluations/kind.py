"""The interface of an evaluation kind.

A kind is a package ``gateway.evaluations.<kind>`` whose module ``kind`` has the kind as ``KIND``;
``gateway.evaluations.kinds`` finds all kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableSequence, Sequence
from typing import Any, ClassVar, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.judge.roles import Role
from dramaturg.results.kind import ResultKind
from dramaturg.service.errors import Violation
from dramaturg.service.validation import check_distinct
from gateway.evaluations.scope import EvaluationContext, EvaluationScope
from gateway.evaluations.streams import Evaluation, Plan
from gateway.evaluations.summary import KindSummary
from gateway.judges.registry import Judge, Registry

WRITTEN_CHARACTERS = 1000
"""The supposed length of a text that a model is to write, where the row has no similar one."""


class PlannedCalls(NamedTuple):
    """Calls of one model through one judge."""

    judge: Judge
    model: str
    """Empty: the judge's default."""
    call_count: int
    characters: int
    """The length of the content of all calls together, without the judge's own prompts."""
    prompt: str | None = ""
    """The prompt of the calls. Empty: the longest of the judge's prompts. None: none."""
    assumption: str = ""
    """What the number of calls supposes, as a sentence. Empty: it follows from the request."""


def text_length(message: Message) -> int:
    """The characters of all texts in a message."""
    return sum(map(len, _texts(message)))


def _texts(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for one in values:
            if isinstance(one, Message):
                yield from _texts(one)
            elif field.type == FieldDescriptor.TYPE_STRING:
                yield one


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
    if spec.options.repeats:
        options.repeats = spec.options.repeats
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


class EvaluationKind(ABC):
    """A kind of evaluation: one method of EvaluationService."""

    method: ClassVar[str]
    """The name of the method."""
    request_type: ClassVar[type[Message]]
    """The type of its request."""
    items: ClassVar[Sequence[str]] = ()
    """The fields of the request whose elements count against quotas. Empty: a request is one item."""
    planner: ClassVar[staticmethod[[Any, Registry], Plan]]
    """Plans a request with the registered judges, as ``plan`` does."""
    evaluation: ClassVar[type[Evaluation[Any]]]
    """Evaluates a plan of the planner."""

    def plan(self, request: Any, context: EvaluationContext) -> Plan:
        """Plans the evaluation of a request that is within the contract's limits.

        Raises:
            ServiceError: The request is invalid; the codes are those of the method's contract.
        """
        return self.planner(request, context.registry)

    def begin(self, request: Any, context: EvaluationContext, scope: EvaluationScope) -> Evaluation[Any]:
        """Plans a request, and prepares its evaluation.

        Args:
            request: The request.
            context: The judges.
            scope: What the calls of the evaluation share.

        Raises:
            ServiceError: As of ``plan``.
        """
        return self.evaluation(self.plan(request, context), context, scope)


class RunKind(EvaluationKind):
    """A kind whose requests can be the rows of a run."""

    name: ClassVar[str]
    """The member of ``RunSpec.evaluation``."""
    results: ClassVar[ResultKind]
    """Its results: the member of ``RunSample.result``, and how they are flattened and ranked."""
    summary: ClassVar[KindSummary]
    """How its samples are summarised."""
    roles: ClassVar[Sequence[Role]]
    """The roles that a run may name judges for. Each row determines which of them it needs."""
    accepts_configured_roles: ClassVar[bool] = False
    """Whether a run may also name judges for the roles that the gateway's settings add."""

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        """Finds models under test that a run cannot have, at the path "models"."""
        yield from check_distinct("models", models)

    def check_spec(self, spec: RunSpec) -> Iterator[Violation]:
        """Finds violations in the options of the kind."""
        del spec
        yield from ()

    def written_fields(self, spec: RunSpec) -> Sequence[str]:
        """The required fields that rows may omit because the models under test write them."""
        del spec
        return ()

    def apply_spec(self, request: Any, spec: RunSpec, repeat_offset: int = 0) -> None:
        """Sets the fields of a row that the spec sets; all others keep the values of the row.

        Judges replace those that the row names for the same roles. Models are those of the row and of the run
        without duplicates.

        Args:
            request: The row, changed in place.
            spec: The spec of the run.
            repeat_offset: Added to the repeat index, so that a rerun requests new completions.
        """
        set_judges(request.judges, self._row_judges(spec))
        set_judge_options(request.options, spec, repeat_offset)
        if spec.models and hasattr(request, "models"):
            added = [model for model in dict.fromkeys(spec.models) if model not in request.models]
            request.models.extend(added)
        if spec.unusable_outputs_abstain and hasattr(request, "unusable_outputs_abstain"):
            request.unusable_outputs_abstain = True
        self._apply_options(request, spec)

    def _row_judges(self, spec: RunSpec) -> Sequence[JudgeSelection]:
        """The judges of the run that judge rows."""
        return spec.judges

    @abstractmethod
    def _apply_options(self, request: Any, spec: RunSpec) -> None:
        """Sets the fields of a row that the options of the kind set."""

    def plan_row(self, request: Any, spec: RunSpec, context: EvaluationContext) -> Plan:
        """Plans a row to which the spec was applied, before any call.

        Raises:
            ServiceError: The row is invalid.
        """
        del spec
        return self.plan(request, context)

    @abstractmethod
    def planned_calls(
        self, request: Any, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        """The model calls of a row to which the spec was applied, of judges as they are built in.

        What depends on answers of models is supposed, and stated in ``PlannedCalls.assumption``.

        Raises:
            ServiceError: The row is invalid.
        """

    async def evaluate(
        self,
        request: Any,
        spec: RunSpec,
        repeat_offset: int,
        context: EvaluationContext,
        scope: EvaluationScope,
    ) -> Message:
        """Evaluates a row to which the spec was applied.

        Raises:
            ServiceError: The row is invalid, or its evaluation failed.
        """
        del spec, repeat_offset
        result: Message = await self.begin(request, context, scope).result()
        return result

    def preparation(self, result: Any) -> tuple[str, Any] | None:
        """The answer that all judgements of a sample depend on, with a sentence that states its absence."""
        del result
        return None

    @abstractmethod
    def model_provenances(self, result: Any) -> Iterator[tuple[str, Provenance]]:
        """The models under test of a result with the provenance of each answer by or about them.

        Answers that models share are omitted: gold answers, roles, comparisons.
        """
