"""Learned compatibility of the models of an endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from services.generation.calls import Call
from services.generation.providers.parameters import FORM_PARAMETERS, Dialect, Parameter, StepDown, requested

FIRST_CALL_SECONDS = 0.3
"""How long calls of a kind that was never made wait for the first of them. A refusal is fast."""
_MOST_KINDS = 4096


@dataclass(slots=True)
class _Learned:
    dialect: Dialect
    until: float
    forms: dict[str, frozenset[Parameter]] = field(default_factory=dict)
    """The refused features of single schemas, by schema name."""


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
        form = learned.forms.get(call.json_form.name) if call.json_form is not None else None
        return learned.dialect if form is None else replace(learned.dialect, omit=learned.dialect.omit | form)

    def _base(self, model: str) -> Dialect:
        dialect = self._settings.get(model)
        if dialect is None:
            if len(self._settings) >= _MOST_KINDS:
                self._settings.clear()
            dialect = self._settings[model] = self._configured(model)
        return dialect

    def learn(self, call: Call, step: StepDown) -> None:
        """Remembers what was refused."""
        if not step.lasting:
            return
        learned = self._learned.get(call.model)
        if learned is None:
            if len(self._learned) >= _MOST_KINDS:
                self._learned.clear()
            learned = self._learned[call.model] = _Learned(self._base(call.model), 0.0)
        learned.until = self._clock() + self._remember
        if step.parameter in FORM_PARAMETERS and call.json_form is not None:
            form = call.json_form.name
            learned.forms[form] = learned.forms.get(form, frozenset()) | {Parameter(step.parameter)}
        else:
            learned.dialect = _merged(learned.dialect, step)

    @asynccontextmanager
    async def turn(self, call: Call) -> AsyncIterator[None]:
        """Holds back calls of a kind that was never made until the first of them is done, or for a second."""
        kind = (call.model, call.json_form, tuple(requested(call, self.dialect(call))))
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
