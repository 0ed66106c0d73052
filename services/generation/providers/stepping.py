"""Calls of an endpoint that are reduced to the parameters it takes.

The compatibility of the models of an endpoint is learned. What a call is refused for is left out of that
call. A refusal may quote the request, so that it proves nothing for other calls. What holds for them is
learned from the refusal of a *probe*: a call with the same parameters and with fixed messages and values. Of
the request it has the JSON Schema alone, and what is learned of a schema holds for that schema alone.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from dramaturg.service.logs import REDACTED
from services.generation.calls import (
    Answer,
    Call,
    Deadline,
    FailureKind,
    FinishReason,
    Message,
    ProviderError,
    Role,
    Sampling,
)
from services.generation.providers.base import KeyFilter, Provider
from services.generation.providers.parameters import (
    FORM_PARAMETERS,
    Dialect,
    Parameter,
    StepDown,
    requested,
    step_down,
)
from services.generation.providers.refusals import Refusal
from services.generation.providers.response_body import characters

PROBE_SECONDS = 10.0
"""How long a probe may take. A refusal is fast."""
PROBE_AGAIN_SECONDS = 60.0
"""The time after which a probe that neither was answered nor refused for a parameter is made again."""
FIRST_CALL_SECONDS = 0.3
"""How long calls of a kind that was never made wait for the first of them. A refusal is fast."""
_MOST_KINDS = 4096
MAX_MESSAGE_LENGTH = 500
"""How much of a provider's own error message is passed on, in characters."""
MAX_STEPS = 12
"""The most parameters that one call is reduced by."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Learned:
    dialect: Dialect
    until: float
    forms: dict[str, frozenset[Parameter]] = field(default_factory=dict)
    """The refused features of single schemas, by [JsonForm.digest]."""


class Compatibility:
    """Remembers the refusals of an endpoint's models. Concurrent calls of one kind learn a refusal once.

    A call's kind is its model, its schema and its features.
    """

    def __init__(
        self,
        configured: Callable[[str], Dialect],
        remember_seconds: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Knows nothing yet.

        Args:
            configured: The dialect of a model, by the settings.
            remember_seconds: How long a refusal is remembered. Afterwards the parameter is sent again.
            clock: Tells the time in seconds.
        """
        self._configured = configured
        self._remember = remember_seconds
        self._clock = clock
        self._learned: dict[str, _Learned] = {}
        self._settings: dict[str, Dialect] = {}
        self._probed: dict[tuple[str, str, str], float] = {}
        """Until when no further probe is made, by model, parameter and schema."""
        self._accepted: set[tuple[object, ...]] = set()
        self._under_way: dict[tuple[object, ...], asyncio.Event] = {}

    def dialect(self, call: Call) -> Dialect:
        """How ``call`` is put now."""
        learned = self._learned.get(call.model)
        if learned is None:
            return self._base(call.model)
        if learned.until < self._clock():
            del self._learned[call.model]
            self._accepted.clear()
            return self._base(call.model)
        form = learned.forms.get(call.json_form.digest) if call.json_form is not None else None
        return learned.dialect if form is None else replace(learned.dialect, omit=learned.dialect.omit | form)

    def knows(self, call: Call) -> bool:
        """Whether a call of this kind was made, so that what it is refused for is known."""
        return self._kind(call) in self._accepted

    def _kind(self, call: Call) -> tuple[object, ...]:
        form = call.json_form.digest if call.json_form is not None else ""
        return call.model, form, tuple(requested(call, self.dialect(call)))

    def _base(self, model: str) -> Dialect:
        dialect = self._settings.get(model)
        if dialect is None:
            if len(self._settings) >= _MOST_KINDS:
                self._settings.clear()
            dialect = self._settings[model] = self._configured(model)
        return dialect

    async def learn(
        self,
        call: Call,
        dialect: Dialect,
        step: StepDown,
        ask: Callable[[Call, Dialect], Awaitable[Answer | Refusal]],
    ) -> int:
        """Probes whether the model refuses what ``step`` leaves out in every call, and remembers it.

        Args:
            call: The call that was refused.
            dialect: How it was put.
            step: How it is put next.
            ask: Makes a call.

        Returns:
            How many calls were made that may have been charged: 0 or 1.
        """
        form = call.json_form.digest if call.json_form and step.parameter in FORM_PARAMETERS else ""
        key = call.model, str(step.parameter), form
        if not step.lasting or not self._remember or self._probed.get(key, 0.0) > self._clock():
            return 0
        if len(self._probed) >= _MOST_KINDS:
            self._probed.clear()
        self._probed[key] = self._clock() + PROBE_SECONDS + PROBE_AGAIN_SECONDS
        probe = _probe(call, dialect.sends(call))
        known, found = self.dialect(probe).without(probe.omit), None
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                said = await ask(probe, known)
        except (TimeoutError, ProviderError):
            self._probed[key] = self._clock() + PROBE_AGAIN_SECONDS
            return 1
        except BaseException:
            del self._probed[key]
            raise
        if isinstance(said, Refusal):
            found = step_down(known, probe, said)
            self._probed[key] = self._clock() + PROBE_AGAIN_SECONDS
            if found is not None and found.lasting:
                self._add(probe, found)
                del self._probed[key]
            return 0 if said.settled else 1
        self._probed[key] = self._clock() + self._remember
        return 1

    def _add(self, call: Call, step: StepDown) -> None:
        learned = self._learned.get(call.model)
        if learned is None:
            if len(self._learned) >= _MOST_KINDS:
                self._learned.clear()
            learned = self._learned[call.model] = _Learned(self._base(call.model), 0.0)
        learned.until = self._clock() + self._remember
        if step.parameter in FORM_PARAMETERS and call.json_form is not None:
            form = call.json_form.digest
            learned.forms[form] = learned.forms.get(form, frozenset()) | {Parameter(step.parameter)}
        else:
            learned.dialect = _merged(learned.dialect, step)

    @asynccontextmanager
    async def turn(self, call: Call) -> AsyncIterator[None]:
        """Holds back calls of a kind that was never made until the first of them is done, or for a second."""
        kind = self._kind(call)
        if kind in self._accepted:
            yield
            return
        first = self._under_way.get(kind)
        if first is not None:
            try:
                async with asyncio.timeout(FIRST_CALL_SECONDS):
                    await first.wait()
            except TimeoutError:
                pass
            yield
            return
        done = self._under_way[kind] = asyncio.Event()
        try:
            yield
            if len(self._accepted) >= _MOST_KINDS:
                self._accepted.clear()
            self._accepted.add(kind)
        finally:
            done.set()
            del self._under_way[kind]


def _probe(call: Call, sent: Collection[Parameter]) -> Call:
    """A call that sends the same parameters, with fixed values and messages."""
    formed = not FORM_PARAMETERS.isdisjoint(sent)
    asked = "Answer with the shortest value that fits." if formed else "Answer with the one word: ready"
    instructions = (Message(Role.SYSTEM, "Answer briefly."),) if Parameter.SYSTEM_ROLE in sent else ()
    sampling = call.sampling
    return Call(
        call.model,
        (*instructions, Message(Role.USER, asked)),
        Sampling(
            temperature=0.0 if Parameter.TEMPERATURE in sent else None,
            top_p=0.5 if Parameter.TOP_P in sent else None,
            # More than any model takes, so that a refusal states the limit.
            max_output_tokens=1_000_000
            if Parameter.MAX_OUTPUT_TOKENS in sent and sampling.max_output_tokens is not None
            else None,
            seed=1 if Parameter.SEED in sent else None,
            stop=("END",) if Parameter.STOP in sent else (),
            reasoning_effort="low"
            if Parameter.REASONING_EFFORT in sent and sampling.reasoning_effort
            else "",
        ),
        call.json_form if formed else None,
        Parameter.LOGPROBS in sent,
        20 if Parameter.TOP_LOGPROBS in sent else 0,
        omit=frozenset(FORM_PARAMETERS.difference(sent)),
    )


def _merged(known: Dialect, step: StepDown) -> Dialect:
    """What is known with what one call learnt; what other calls learnt meanwhile stays."""
    learnt = step.dialect
    if step.parameter == "stream":
        return replace(known, stream=True)
    if step.parameter is Parameter.MAX_OUTPUT_TOKENS:
        known = replace(
            known,
            token_parameter=learnt.token_parameter,
            token_parameters_refused=learnt.token_parameters_refused,
            most_output_tokens=learnt.most_output_tokens,
        )
    elif step.parameter is Parameter.TOP_LOGPROBS:
        known = replace(known, most_top_logprobs=learnt.most_top_logprobs)
    return replace(known, omit=known.omit | ({step.parameter} & learnt.omit))


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
