"""Calls of an endpoint that are reduced to the parameters it takes."""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections.abc import Callable

from dramaturg.service.redaction import REDACTED
from services.generation.calls import Answer, Call, FinishReason
from services.generation.deadlines import Deadline
from services.generation.errors import FailureKind, ProviderError
from services.generation.providers.base import Provider
from services.generation.providers.compatibility import Compatibility
from services.generation.providers.key_filter import KeyFilter
from services.generation.providers.parameters import Dialect, step_down
from services.generation.providers.refusals import Refusal
from services.generation.providers.response_body import characters

MAX_MESSAGE_LENGTH = 500
"""How much of a provider's own error message is passed on, in characters."""
MAX_STEPS = 12
"""The most parameters that one call is reduced by."""

logger = logging.getLogger(__name__)


class SteppingProvider(Provider):
    """An endpoint of any API: a single attempt a call, and one more for each parameter that it refuses."""

    keeps = False
    kind = "chat"
    """The kind of provider, as in the settings."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        default_model: str = "",
        dialect: Callable[[str], Dialect] = lambda _: Dialect(),
        remember_seconds: float = 86_400.0,
        keys: KeyFilter | None = None,
    ) -> None:
        """Knows nothing of the endpoint's models yet.

        Args:
            name: The provider's name.
            address: What tells its answers from those of other endpoints.
            default_model: The model where a request names none.
            dialect: How a model is called, by the settings.
            remember_seconds: How long what a model refused is remembered.
            keys: Removes keys from responses. None: nothing is removed.
        """
        self.name = name
        self.address = address
        self.default_model = default_model
        self._filter = keys or KeyFilter(())
        self._compatibility = Compatibility(dialect, remember_seconds)

    @abstractmethod
    async def _ask(self, call: Call, dialect: Dialect) -> Answer | Refusal:
        """One request: the answer, or why the endpoint refuses it. Raises ProviderError for no response."""

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Makes one attempt, and one more for each parameter that the endpoint refuses.

        A request or an answer that the endpoint's filter stops is an answer with that finish reason.

        Raises:
            ProviderError: there is no answer.
        """
        del deadline
        async with self._compatibility.turn(call):
            dialect = self._compatibility.dialect(call).without(call.omit)
            steps = probes = 0
            while True:
                answer = await self._ask(call, dialect)
                if isinstance(answer, Answer):
                    answer.omitted = dialect.omitted(call)
                    answer.retried += probes
                    return answer
                step = step_down(dialect, call, answer) if steps < MAX_STEPS else None
                if step is None:
                    raise self._refused(answer)
                # Not the refusal's words: they may quote the request.
                logger.info(
                    "provider %s, model %s: goes on without %s after HTTP status %d",
                    self.name,
                    call.model,
                    step.parameter,
                    answer.status,
                )
                probes += await self._compatibility.learn(call, dialect, step, self._ask)
                dialect = step.dialect
                steps += 1

    def _filtered(self, refusal: Refusal) -> Answer:
        """The answer to a request that the endpoint's content filter refused."""
        return Answer("", FinishReason.FILTER, detail=self._safe(refusal.said))

    def _refused(self, refusal: Refusal) -> ProviderError:
        status = f"answered with HTTP status {refusal.status}" if refusal.status else "answered with an error"
        said = refusal.said
        kind = refusal.other_kind
        if kind and kind != self.kind:
            said = f'the model needs kind = "{kind}", and this provider has kind = "{self.kind}": {said}'
        if refusal.kind is FailureKind.UNAUTHENTICATED:
            said = self._without_quoted_keys(said)
        return ProviderError(
            refusal.kind,
            self.name,
            self._safe(f"{status}: {said}"),
            status=refusal.status,
            retry_after=refusal.retry_after,
            settled=refusal.settled,
            quotas=refusal.quotas,
        )

    def _unreadable(self, error: Exception) -> ProviderError:
        message = f"the response cannot be read: {error}"
        return ProviderError(FailureKind.TRANSIENT, self.name, self._safe(message))

    def _without_quoted_keys(self, message: str) -> str:
        """What a provider says of a key that it refuses, without the parts of the key that it quotes."""
        starts = [re.escape(secret[:4]) for secret in self._filter.keys]
        quoted = "|".join([r"Bearer\s+\S+", r"\S*\*{3,}\S*", *(rf"\b{start}\S*" for start in starts)])
        return re.sub(quoted, REDACTED, message)

    def _safe(self, message: str) -> str:
        message = self._filter.text(characters(message))
        return message if len(message) <= MAX_MESSAGE_LENGTH else message[:MAX_MESSAGE_LENGTH] + "..."
