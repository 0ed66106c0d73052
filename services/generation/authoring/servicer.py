"""AuthoringService: writes the requested material and signs its provenance."""

from __future__ import annotations

from typing import Any

from dramaturg.api.generation.v1 import authoring_datasets_pb2 as datasets_pb
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as decisions_pb
from dramaturg.api.generation.v1 import authoring_dialogues_pb2 as dialogues_pb
from dramaturg.api.generation.v1 import authoring_graphs_pb2 as graphs_pb
from dramaturg.api.generation.v1 import authoring_service_pb2 as pb
from dramaturg.api.generation.v1 import authoring_service_pb2_grpc as pb_grpc
from dramaturg.judge.excerpts import DialogueLimits
from dramaturg.judge.prompts import PromptLibrary
from services.generation.author import Author, Signature
from services.generation.authoring.decisions import OptionChooser, ScenarioWriter
from services.generation.authoring.dialogues import Continuer, SimulationTaskWriter, UserAgent
from services.generation.authoring.graphs import ScriptGraphWriter
from services.generation.authoring.scripts import ConstraintExpander, ScriptPerturber, ScriptWriter

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["AuthoringService"]
NAME = "llm-author"
"""The implementation's name."""


class AuthoringServicer(pb_grpc.AuthoringServiceServicer):
    """Writes with the models of the configured providers.

    Args:
        author: Asks the models.
        library: The prompts.
        version: The version in the provenance of answers.
    """

    def __init__(self, author: Author, library: PromptLibrary, *, version: str) -> None:
        self._signature = Signature(NAME, version, DESCRIPTOR.full_name)
        self._scripts = ScriptWriter(author, library)
        self._constraints = ConstraintExpander(author, library)
        self._perturber = ScriptPerturber(author, library)
        self._graphs = ScriptGraphWriter(author, library)
        self._options = OptionChooser(author, library)
        self._scenarios = ScenarioWriter(author, library)
        self._tasks = SimulationTaskWriter(author, library)
        self._user = UserAgent(author, library, DialogueLimits())
        self._replies = Continuer(author)

    async def WriteScript(self, request: pb.WriteScriptRequest, context: Any) -> pb.WriteScriptResponse:
        del context
        return await self._signature.under(self._scripts.write(request))

    async def ExpandConstraints(
        self, request: datasets_pb.ExpandConstraintsRequest, context: Any
    ) -> datasets_pb.ExpandConstraintsResponse:
        del context
        return await self._signature.under(self._constraints.expand(request))

    async def PerturbScript(
        self, request: datasets_pb.PerturbScriptRequest, context: Any
    ) -> datasets_pb.PerturbScriptResponse:
        del context
        return await self._signature.under(self._perturber.perturb(request))

    async def WriteScriptGraph(
        self, request: graphs_pb.WriteScriptGraphRequest, context: Any
    ) -> graphs_pb.WriteScriptGraphResponse:
        """Writes the events of a script and their order."""
        del context
        return await self._signature.under(self._graphs.write(request))

    async def ChooseOption(
        self, request: decisions_pb.ChooseOptionRequest, context: Any
    ) -> decisions_pb.ChooseOptionResponse:
        del context
        return await self._signature.under(self._options.choose(request))

    async def WriteScenario(
        self, request: decisions_pb.WriteScenarioRequest, context: Any
    ) -> decisions_pb.WriteScenarioResponse:
        """Writes a scenario that leads to an option."""
        del context
        return await self._signature.under(self._scenarios.write(request))

    async def WriteSimulationTask(
        self, request: dialogues_pb.WriteSimulationTaskRequest, context: Any
    ) -> dialogues_pb.WriteSimulationTaskResponse:
        del context
        return await self._signature.under(self._tasks.write(request))

    async def NextUserTurn(
        self, request: dialogues_pb.NextUserTurnRequest, context: Any
    ) -> dialogues_pb.NextUserTurnResponse:
        """Writes the next utterance of the user of a simulation."""
        del context
        return await self._signature.under(self._user.next_turn(request))

    async def Reply(self, request: dialogues_pb.ReplyRequest, context: Any) -> dialogues_pb.ReplyResponse:
        """Continues a dialogue as the model under test."""
        del context
        return await self._signature.under(self._replies.reply(request))
