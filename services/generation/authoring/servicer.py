"""AuthoringService: decodes, asks the completer, encodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import PromptReference, Provenance
from dramaturg.api.generation.v1 import authoring_service_pb2 as pb
from dramaturg.api.generation.v1 import authoring_service_pb2_grpc as pb_grpc
from services.generation import codec
from services.generation.authoring.scripts import ScriptPrompt, read_script
from services.generation.calls import Call, Completion, Message, Status
from services.generation.completions import Completer
from services.generation.patience import Patience

CONTRACT = pb.DESCRIPTOR.services_by_name["AuthoringService"].full_name


class AuthoringServicer(pb_grpc.AuthoringServiceServicer):
    """Writes with the models of the configured providers."""

    def __init__(
        self,
        completer: Completer,
        patience: Patience,
        script_prompt: ScriptPrompt,
        *,
        name: str,
        version: str,
    ) -> None:
        self._completer = completer
        self._patience = patience
        self._script_prompt = script_prompt
        self._name = name
        self._version = version

    async def WriteScript(self, request: pb.WriteScriptRequest, context: Any) -> pb.WriteScriptResponse:
        """Writes a script for a task."""
        del context
        messages = codec.decode_messages(self._script_prompt.messages(request.task))
        completion = await self._complete(messages, request.options)
        usable = completion.status is Status.OK
        return pb.WriteScriptResponse(
            text=completion.text,
            script=read_script(completion.text) if usable else None,
            provenance=self._provenance(completion, self._script_prompt.prompt.reference),
            failure="" if usable else completion.status.value,
        )

    async def _complete(self, messages: tuple[Message, ...], options: JudgeOptions) -> Completion:
        sampling = codec.decode_sampling(options.sampling)
        if not options.HasField("sampling"):
            sampling = replace(sampling, temperature=0.0)
        call = Call(options.model, messages, sampling, repeat_index=options.repeat_index)
        with codec.domain_errors():
            return await self._completer.complete(call, self._patience.deadline())

    def _provenance(self, completion: Completion, *prompts: PromptReference) -> Provenance:
        provenance = Provenance(
            name=self._name,
            version=self._version,
            contract=CONTRACT,
            prompts=prompts,
            completions=codec.encode_calls(completion.purchases),
            usage=codec.encode_usage(completion.purchases),
        )
        provenance.latency.FromNanoseconds(round(completion.latency * 1e9))
        return provenance
