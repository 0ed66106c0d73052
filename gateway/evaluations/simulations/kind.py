"""The kind ``simulations``: dialogues of SimulBench and the test scripts cut from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulatedDialogue, SimulateDialogueRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.judge.roles import AUTHOR, CHALLENGE_JUDGE
from dramaturg.results.simulations import SIMULATIONS
from dramaturg.service.errors import Violation
from gateway.evaluations.estimates import WRITTEN_CHARACTERS, PlannedCalls, text_length
from gateway.evaluations.kind import EvaluationContext, RunKind
from gateway.evaluations.scope import EvaluationScope
from gateway.evaluations.simulations.evaluation import Simulation
from gateway.evaluations.simulations.plan import SimulationPlan, plan_simulation
from gateway.evaluations.simulations.summary import SimulationsKindSummary
from gateway.judges.selection import counted_shadows

_ALL_TURNS = "every dialogue is counted with all its turns; one that fails has fewer"


class SimulationsKind(RunKind):
    method = "SimulateDialogue"
    request_type = SimulateDialogueRequest
    name = "simulations"
    results = SIMULATIONS
    summary = SimulationsKindSummary()
    roles = (AUTHOR, CHALLENGE_JUDGE)

    def plan(self, request: SimulateDialogueRequest, context: EvaluationContext) -> SimulationPlan:
        return plan_simulation(request, context.registry)

    def begin(
        self, request: SimulateDialogueRequest, context: EvaluationContext, scope: EvaluationScope
    ) -> Simulation:
        return Simulation(self.plan(request, context), scope)

    def planned_calls(
        self, request: SimulateDialogueRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_simulation(request, context.registry)
        author, turns = plan.author, plan.max_turns()
        task, opening = text_length(request.task), len(request.task.description)
        # The description of the task is the first utterance; each call has all utterances before it.
        sent = [opening + index * WRITTEN_CHARACTERS for index in range(2 * turns)]
        replies, requests = sent[0:-1:2], sent[1:-1:2]
        return [
            PlannedCalls(
                author.judge, request.simulator_model or author.model, turns, sum(replies), None, _ALL_TURNS
            ),
            PlannedCalls(
                author.judge,
                request.user_model or author.model,
                turns - 1,
                len(requests) * task + sum(requests),
                "next_user_turn",
            ),
            *(
                PlannedCalls(one.judge, one.model, 1, task + sent[-1])
                for one in (plan.challenge_judge, *counted_shadows(plan.shadows))
            ),
        ]

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        if models:
            yield Violation("models", "must be empty for simulations: simulator_model and user_model write")

    def _apply_options(self, request: SimulateDialogueRequest, spec: RunSpec) -> None:
        options = spec.simulations
        request.simulator_model = options.simulator_model or request.simulator_model
        request.user_model = options.user_model or request.user_model
        request.max_turn_count = options.max_turn_count or request.max_turn_count
        if options.HasField("user_sampling"):
            request.user_sampling.CopyFrom(options.user_sampling)
        if options.HasField("simulator_sampling"):
            request.simulator_sampling.CopyFrom(options.simulator_sampling)
        if spec.HasField("seed"):
            for sampling in (request.user_sampling, request.simulator_sampling):
                if not sampling.HasField("seed"):
                    sampling.seed = spec.seed

    def model_provenances(self, result: SimulatedDialogue) -> Iterator[tuple[str, Provenance]]:
        del result  # No model is under test.
        yield from ()
