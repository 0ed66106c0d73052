"""The evaluation of each type of request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest, SimulateDialogueRequest
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.texts_pb2 import CompareTextsRequest
from gateway.evaluations.calls import Timeouts
from gateway.evaluations.decisions import DecisionsEvaluation, plan_decisions
from gateway.evaluations.dialogues.evaluation import DialoguesEvaluation
from gateway.evaluations.dialogues.plan import plan_dialogues
from gateway.evaluations.dialogues.simulation import Simulation, plan_simulation
from gateway.evaluations.graphs.evaluation import GraphsEvaluation
from gateway.evaluations.graphs.plan import plan_graphs
from gateway.evaluations.scripts.evaluation import ScriptsEvaluation
from gateway.evaluations.scripts.plan import plan_scripts
from gateway.evaluations.streams import Evaluation
from gateway.evaluations.texts.evaluation import TextsEvaluation
from gateway.evaluations.texts.plan import plan_texts
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Registry


class Evaluations:
    """Plans the evaluation of any request.

    Args:
        registry: The registered judges.
        directory: The identities of the judges.
        timeouts: The timeouts of judges.
    """

    def __init__(self, registry: Registry, directory: JudgeDirectory, timeouts: Timeouts) -> None:
        self.registry = registry
        self.timeouts = timeouts
        self._by_request: Mapping[type[Message], Callable[[Any], Evaluation]] = {
            EvaluateScriptsRequest: lambda request: ScriptsEvaluation(
                plan_scripts(request, registry), directory, timeouts
            ),
            CompareTextsRequest: lambda request: TextsEvaluation(
                plan_texts(request, registry), directory, timeouts
            ),
            EvaluateGraphsRequest: lambda request: GraphsEvaluation(plan_graphs(request, registry), timeouts),
            EvaluateDecisionsRequest: lambda request: DecisionsEvaluation(
                plan_decisions(request, registry), timeouts
            ),
            SimulateDialogueRequest: lambda request: Simulation(plan_simulation(request, registry), timeouts),
            EvaluateDialoguesRequest: lambda request: DialoguesEvaluation(
                plan_dialogues(request, registry), timeouts
            ),
        }

    def plan(self, request: Message) -> Evaluation:
        """Plans the evaluation of a request that is within the contract's limits.

        Args:
            request: The request of a method of EvaluationService.

        Raises:
            ServiceError: The request is invalid; the codes are those of the method's contract.
        """
        return self._by_request[type(request)](request)
