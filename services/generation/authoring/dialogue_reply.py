"""Continues dialogues as the model under test (SimulBench, section 2.4)."""

from __future__ import annotations

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.generation.v1 import authoring_dialogues_pb2 as pb
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Message
from dramaturg.judge.dialogues import require_turns
from services.generation.author import Author, with_defaults

TEMPERATURE, MAX_OUTPUT_TOKENS = 0.0, 1024
"""Where a request sets none (section 3.2)."""

_ROLES = {
    dialogue_pb2.SPEAKER_USER: generation_service_pb2.MESSAGE_ROLE_USER,
    dialogue_pb2.SPEAKER_SIMULATOR: generation_service_pb2.MESSAGE_ROLE_ASSISTANT,
}


class Continuer:
    """Has a model under test continue a dialogue. It is sent the utterances and nothing else.

    Args:
        author: Asks the model.
    """

    def __init__(self, author: Author) -> None:
        self._author = author

    async def reply(self, request: pb.ReplyRequest) -> pb.ReplyResponse:
        """Continues the dialogue. A model that answers with nothing has replied with nothing.

        Raises:
            ServiceError: INVALID_ARGUMENT, or there is no answer.
        """
        require_turns(request.utterances, last=dialogue_pb2.SPEAKER_USER)
        messages = [Message(role=_ROLES[said.speaker], text=said.text) for said in request.utterances]
        options = with_defaults(request.options, temperature=TEMPERATURE, max_output_tokens=MAX_OUTPUT_TOKENS)
        written = await self._author.write(messages, options)
        response = pb.ReplyResponse(text=written.text, provenance=written.provenance)
        empty = written.completion.status == generation_service_pb2.COMPLETION_STATUS_EMPTY
        if written.abstention is not None and not empty:
            response.abstain_reason = written.abstention.reason
        return response
