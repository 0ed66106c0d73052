"""The answer synthesizer with a language model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNSPECIFIED
from dramaturg.judge import VERSION
from dramaturg.judge.answers import StepsForm
from dramaturg.judge.excerpts import ExcerptLimits, constraints_excerpt, goal_excerpt
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from services.agents.synthesize.pool import draw_pool

_GOAL, _CONSTRAINTS, _EXAMPLES = "goal", "constraints", "examples"


class LlmSynthesizer:
    """Writes a script from the pool, or from the task alone.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: The maximum lengths of the parts of a request in the prompt.
    """

    name: str = "llm-synthesize"
    version: str = VERSION
    description: str = "Has a language model write a reference script, learning from all candidates."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, asker: Asker, library: PromptLibrary, limits: ExcerptLimits) -> None:
        fixed = (ANSWER_PLACEHOLDER,)
        self._pooling = library.load("synthesize", fixed=fixed, content=(_GOAL, _CONSTRAINTS, _EXAMPLES))
        self._alone = library.load("synthesize_alone", fixed=fixed, content=(_GOAL, _CONSTRAINTS))
        self._asker = asker
        self._limits = limits

    async def synthesize(self, request: SynthesizeRequest) -> SynthesizeResponse:
        """Writes a reference script. For an unusable answer the response has the reason.

        Raises:
            ServiceError: The call to the model failed.
        """
        pool = draw_pool(request.candidates, self._limits)
        excerpts = {
            _GOAL: goal_excerpt(request.task, self._limits),
            _CONSTRAINTS: constraints_excerpt(request.task, self._limits),
            _EXAMPLES: pool.excerpt,
        }
        answer = await self._asker.ask(
            self._pooling if pool.ids else self._alone,
            {name: excerpt.text for name, excerpt in excerpts.items()},
            StepsForm(),
            request.options,
        )
        for excerpt in excerpts.values():
            answer.provenance.parameters.update(excerpt.parameters)
        return SynthesizeResponse(
            script=Script(steps=[Step(text=step) for step in answer.value or ()]),
            failure=answer.abstention.explanation if answer.abstention else "",
            failure_reason=answer.abstention.reason if answer.abstention else ABSTAIN_REASON_UNSPECIFIED,
            pool_ids=pool.ids,
            provenance=answer.provenance,
        )
