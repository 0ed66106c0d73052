"""Learned compatibility of the models of an endpoint.

What a call is refused for is left out of that call. A refusal may quote the request, so that it proves
nothing for other calls. What holds for them is learned from the refusal of a *probe*: a call with the same
parameters and with fixed messages and values. Of the request it has the JSON Schema alone, and what is
learned of a schema holds for that schema alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from services.generation.calls import Answer, Call, Message, Role, Sampling
from services.generation.errors import ProviderError
from services.generation.providers.parameters import (
    FORM_PARAMETERS,
    Dialect,
    Parameter,
    StepDown,
    requested,
    step_down,
)
from services.generation.providers.refusals import Refusal

PROBE_SECONDS = 10.0
"""How long a probe may take. A refusal is fast."""
PROBE_AGAIN_SECONDS = 60.0
"""The time after which a probe that neither was answered nor refused for a parameter is made again."""
FIRST_CALL_SECONDS = 0.3
"""How long calls of a kind that was never made wait for the first of them. A refusal is fast."""
_MOST_KINDS = 4096


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
        form = call.json_form.digest if call.json_form is not None else ""
        kind = (call.model, form, tuple(requested(call, self.dialect(call))))
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
