"""The kind ``simulations``: dialogues of SimulBench. It has no runs."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulateDialogueRequest
from gateway.evaluations.kind import EvaluationContext, EvaluationKind
from gateway.evaluations.simulations.evaluation import Simulation
from gateway.evaluations.simulations.plan import plan_simulation


class SimulationsKind(EvaluationKind):
    method = "SimulateDialogue"
    request_type = SimulateDialogueRequest

    def plan(self, request: SimulateDialogueRequest, context: EvaluationContext) -> Simulation:
        return Simulation(plan_simulation(request, context.registry), context.timeouts)
