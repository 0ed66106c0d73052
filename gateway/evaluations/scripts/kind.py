"""The kind ``scripts``: ABSEval. Models under test of a run write scripts before they are judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    GOLD_ANSWER_SOURCE_GIVEN,
    GOLD_ANSWER_SOURCE_NONE,
    GOLD_ANSWER_SOURCE_POOLED,
    EvaluateScriptsRequest,
    ScriptsResult,
)
from dramaturg.judge.roles import AUTHOR, COMMONSENSE, CRITIC, EXECUTE, SCRIPT_JUDGE, SYNTHESIZE
from dramaturg.results.scripts import SCRIPTS
from gateway.evaluations.estimates import WRITTEN_CHARACTERS, PlannedCalls, text_length
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.scripts.authorship import (
    add_scripts,
    placeholders,
    select_author,
    write_scripts,
)
from gateway.evaluations.scripts.evaluation import ScriptsEvaluation
from gateway.evaluations.scripts.plan import ScriptsPlan, plan_scripts
from gateway.evaluations.scripts.summary import ScriptsKindSummary
from gateway.judges.selection import counted_shadows


class ScriptsKind(RunKind):
    method = "EvaluateScripts"
    request_type = EvaluateScriptsRequest
    items = ("candidates",)
    name = "scripts"
    results = SCRIPTS
    summary = ScriptsKindSummary()
    roles = (AUTHOR, SYNTHESIZE, CRITIC, EXECUTE, COMMONSENSE, SCRIPT_JUDGE)
    accepts_configured_roles = True

    def plan(self, request: EvaluateScriptsRequest, context: EvaluationContext) -> ScriptsPlan:
        return plan_scripts(request, context.registry)

    def begin(
        self, request: EvaluateScriptsRequest, context: EvaluationContext, scope: EvaluationScope
    ) -> ScriptsEvaluation:
        return ScriptsEvaluation(self.plan(request, context), context.directory, scope, context.parsers)

    def written_fields(self, spec: RunSpec) -> Sequence[str]:
        return ("candidates",) if spec.models else ()

    def _row_judges(self, spec: RunSpec) -> Sequence[JudgeSelection]:
        # The author writes before rows are judged.
        return [selection for selection in spec.judges if selection.role != AUTHOR.name]

    def _apply_options(self, request: EvaluateScriptsRequest, spec: RunSpec) -> None:
        options = spec.scripts
        if options.mechanism:
            request.mechanism = options.mechanism
        if options.gold_answer_source:
            request.gold_answer_source = options.gold_answer_source
            if options.gold_answer_source != GOLD_ANSWER_SOURCE_GIVEN:
                request.ClearField("gold_answer")

    def plan_row(
        self, request: EvaluateScriptsRequest, spec: RunSpec, context: EvaluationContext
    ) -> ScriptsPlan:
        if not spec.models:
            return self.plan(request, context)
        planned = EvaluateScriptsRequest()
        planned.CopyFrom(request)
        planned.candidates.extend(placeholders(request, spec))
        return self.plan(planned, context)

    def planned_calls(
        self, request: EvaluateScriptsRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        planned = EvaluateScriptsRequest()
        planned.CopyFrom(request)
        written = placeholders(request, spec) if spec.models else []
        planned.candidates.extend(written)
        plan = plan_scripts(planned, context.registry)
        task = text_length(request.task)
        given = [text_length(candidate) for candidate in request.candidates]
        mean = sum(given) // len(given) if given else WRITTEN_CHARACTERS
        scripts, count = sum(given) + len(written) * mean, len(planned.candidates)
        reference = 0 if plan.source == GOLD_ANSWER_SOURCE_NONE else mean
        calls = [
            PlannedCalls(one.judge, one.model, count, scripts + count * (task + reference))
            for one in (*plan.assignments, *counted_shadows(plan.shadows))
        ]
        if plan.synthesizer is not None:
            pool = scripts if plan.source == GOLD_ANSWER_SOURCE_POOLED else 0
            calls.append(PlannedCalls(plan.synthesizer.judge, plan.synthesizer.model, 1, task + pool))
        if spec.models:
            author = select_author(spec, context.registry).judge
            calls += [PlannedCalls(author, model, 1, task, "write_script") for model in spec.models]
        return calls

    async def evaluate(
        self,
        request: EvaluateScriptsRequest,
        spec: RunSpec,
        repeat_offset: int,
        context: EvaluationContext,
        scope: EvaluationScope,
    ) -> ScriptsResult:
        if not spec.models:
            result: ScriptsResult = await self.begin(request, context, scope).result()
            return result
        self.plan_row(request, spec, context)
        scripts = await write_scripts(request, spec, repeat_offset, context.registry, scope)
        request.candidates.extend(script.candidate for script in scripts if script.is_judgeable)
        if request.candidates:
            result = await self.begin(request, context, scope).result()
        else:
            result = ScriptsResult(task=request.task, tags=request.tags, mechanism=request.mechanism)
        add_scripts(result, scripts)
        return result

    def preparation(self, result: ScriptsResult) -> tuple[str, Any]:
        return "there is no gold answer", result.gold_answer

    def model_provenances(self, result: ScriptsResult) -> Iterator[tuple[str, Provenance]]:
        for candidate in result.candidates:
            for assessed in candidate.assessments:
                yield candidate.model, assessed.assessment.provenance
