"""Notes every call in the ledger before it is sent."""

from __future__ import annotations

from collections.abc import Sequence

from services.generation.calls import Answer, Call
from services.generation.deadlines import Deadline
from services.generation.errors import ProviderError
from services.generation.fingerprints import fingerprint
from services.generation.ledger import Ledger
from services.generation.providers.base import Provider


class RecordingProvider(Provider):
    """A provider whose calls are noted one by one, as they go out.

    An answer carries the number of its note, which stands until the answer is kept or done with: whoever
    asked settles it (see ``Ledger``).
    """

    def __init__(self, inner: Provider, ledger: Ledger) -> None:
        self._inner = inner
        self._ledger = ledger
        self.name = inner.name
        self.address = inner.address
        self.default_model = inner.default_model
        self.keeps = inner.keeps

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """The inner provider's answer, or what it raises.

        A failure by which the call was certainly not charged settles the note. Any other, and any cut from
        outside such as a time limit, leaves a call that may have been paid for in vain.
        """
        intent = self._ledger.intend(fingerprint(call, self.address))
        try:
            answer = await self._inner.complete(call, deadline)
        except BaseException as error:
            if isinstance(error, ProviderError) and error.settled:
                self._ledger.settle([intent])
            else:
                self._ledger.abandon([intent])
            raise
        answer.intent = intent
        return answer

    async def models(self) -> Sequence[str]:
        """The names of the inner provider's models."""
        return await self._inner.models()

    async def close(self) -> None:
        """Closes the inner provider."""
        await self._inner.close()
