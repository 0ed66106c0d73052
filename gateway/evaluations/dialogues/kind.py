"""The kind ``dialogues``: replies to the test scripts of SimulBench."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult, EvaluateDialoguesRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.judge.roles import AUTHOR, PAIR_JUDGE, RATING_JUDGE, TEXT_SCORER
from dramaturg.results.dialogues import DIALOGUES
from dramaturg.service.errors import Violation
from gateway.evaluations.dialogues.evaluation import DialoguesEvaluation
from gateway.evaluations.dialogues.plan import DialoguesPlan, plan_dialogues
from gateway.evaluations.dialogues.summary import DialoguesKindSummary
from gateway.evaluations.estimates import WRITTEN_CHARACTERS, PlannedCalls, text_length
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.selection import counted_shadows


class DialoguesKind(RunKind):
    method = "EvaluateDialogues"
    request_type = EvaluateDialoguesRequest
    items = ("models", "replies", "pairs")
    name = "dialogues"
    results = DIALOGUES
    summary = DialoguesKindSummary()
    roles = (AUTHOR, RATING_JUDGE, PAIR_JUDGE, TEXT_SCORER)

    def plan(self, request: EvaluateDialoguesRequest, context: EvaluationContext) -> DialoguesPlan:
        return plan_dialogues(request, context.registry)

    def begin(
        self, request: EvaluateDialoguesRequest, context: EvaluationContext, scope: EvaluationScope
    ) -> DialoguesEvaluation:
        return DialoguesEvaluation(self.plan(request, context), scope)

    def planned_calls(
        self, request: EvaluateDialoguesRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_dialogues(request, context.registry)
        script = text_length(request.script)
        replies = [text_length(reply) for reply in request.replies]
        mean = sum(replies) // len(replies) if replies else WRITTEN_CHARACTERS
        count = len(request.models) + len(replies)
        given = sum(replies) + len(request.models) * mean
        written = [
            PlannedCalls(plan.author.judge, model, 1, script, None)
            for model in request.models
            if plan.author is not None
        ]
        shadows = counted_shadows(plan.shadows)
        raters = [*plan.rating_judges, *(one for one in shadows if one.role == RATING_JUDGE)]
        rated = [PlannedCalls(one.judge, one.model, count, count * script + given) for one in raters]
        # Each pair is judged in both orders.
        pairs = 2 * len(request.pairs)
        pair_judges = [*plan.pair_judges, *(one for one in shadows if one.role == PAIR_JUDGE)]
        compared = [
            PlannedCalls(one.judge, one.model, pairs, pairs * (script + 2 * mean)) for one in pair_judges
        ]
        return [*written, *rated, *compared]

    def check_spec(self, spec: RunSpec) -> Iterator[Violation]:
        for index, pair in enumerate(spec.dialogues.pairs):
            if pair.first_model == pair.second_model:
                yield Violation(f"dialogues.pairs[{index}]", f"compares {pair.first_model!r} with itself")

    def _apply_options(self, request: EvaluateDialoguesRequest, spec: RunSpec) -> None:
        options = spec.dialogues
        if options.pairs:
            del request.pairs[:]
            request.pairs.extend(options.pairs)
        if options.ratings_omitted:
            request.ratings_omitted = True
        if options.HasField("rules"):
            request.rules.CopyFrom(options.rules)
        # The sampling of the run is for judges and replies, unless replies have their own.
        if options.HasField("sampling"):
            request.sampling.CopyFrom(options.sampling)
        elif spec.options.HasField("sampling"):
            request.sampling.CopyFrom(spec.options.sampling)
        if spec.HasField("seed") and not request.sampling.HasField("seed"):
            # The author sets its own temperature if sampling has none.
            request.sampling.seed = spec.seed

    def model_provenances(self, result: DialogueResult) -> Iterator[tuple[str, Provenance]]:
        yield from ((reply.model, reply.provenance) for reply in result.replies)
        yield from ((rated.model, rated.rating.provenance) for rated in result.ratings)
        yield from ((scored.model, scored.provenance) for scored in result.scores)
