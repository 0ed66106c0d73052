"""Generates the readers of a text: coarse and fine ones in one model call (DRPE, section 3.1, Figure 4)."""

from __future__ import annotations

from dramaturg.api.roles.v1.role_service_pb2 import GenerateRolesRequest, GenerateRolesResponse
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker
from dramaturg.judge.prompts import PromptLibrary
from services.roles.form import COARSE, FINE, RolesForm
from services.roles.settings import SourceLimits

DEFAULT_COUNTS = {COARSE: 3, FINE: 2}
"""How many roles of each kind, where a request asks for none: five together (DRPE, section 4.1)."""

_SOURCE, _KINDS, _COUNTS = "source", "kinds", "counts"


class RoleGenerator:
    """Asks a model who reads a text.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: How much of a text the model is shown.
    """

    def __init__(self, asker: Asker, library: PromptLibrary, limits: SourceLimits) -> None:
        self._prompt = library.load(
            "generate_roles",
            placeholders={_SOURCE, _KINDS, _COUNTS, ANSWER_PLACEHOLDER},
            criteria=DEFAULT_COUNTS,
        )
        self._asker = asker
        self._limits = limits

    async def generate(self, request: GenerateRolesRequest) -> GenerateRolesResponse:
        """Generates roles. An answer that holds none gives a response that says why.

        Raises:
            ServiceError: The model cannot be asked.
        """
        asked = {COARSE: request.coarse_count, FINE: request.fine_count}
        counts = {kind: count for kind, count in asked.items() if count} or DEFAULT_COUNTS
        source = Excerpt((fence("text", request.source, limit=self._limits.source),))
        values = {
            _SOURCE: source.text,
            _KINDS: self._prompt.part(list(counts)),
            _COUNTS: " and ".join(f"{count} {kind}" for kind, count in counts.items()),
        }
        answer = await self._asker.ask(self._prompt, values, RolesForm(counts), request.options)
        answer.provenance.parameters.update(source.parameters)
        if answer.value is None:
            failure = answer.abstention.explanation if answer.abstention else ""
            return GenerateRolesResponse(failure=failure, provenance=answer.provenance)
        return GenerateRolesResponse(
            roles=answer.value.roles,
            dropped=answer.value.dropped,
            failure="" if answer.value.roles else "The model's answer holds no role.",
            provenance=answer.provenance,
        )
