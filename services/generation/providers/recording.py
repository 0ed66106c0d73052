"""Records every call in the ledger before it is sent."""

from __future__ import annotations

from collections.abc import Sequence

from services.generation.calls import Answer, Call
from services.generation.deadlines import Deadline
from services.generation.errors import ProviderError
from services.generation.fingerprints import fingerprint
from services.generation.ledger import Ledger
from services.generation.providers.base import Provider


class RecordingProvider(Provider):
    """A provider whose calls are recorded in the ledger before they are sent.

    An answer carries the number of its record, which remains until the answer is stored or settled (see
    ``Ledger``). A call that cannot be recorded is not sent.
    """

    def __init__(self, inner: Provider, ledger: Ledger) -> None:
        self._inner = inner
        self._ledger = ledger
        self.name = inner.name
        self.address = inner.address
        self.default_model = inner.default_model
        self.keeps = inner.keeps

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Records the call, sends it and returns the answer.

        A failure by which the call was certainly not charged settles the record. After any other failure, a
        cancellation included, the call may have been paid for in vain.

        Raises:
            LedgerUnavailableError: The call cannot be recorded; nothing was sent.
        """
        call_number = await self._ledger.record_call(fingerprint(call, self.address))
        try:
            answer = await self._inner.complete(call, deadline)
        except BaseException as error:
            if isinstance(error, ProviderError) and error.settled:
                self._ledger.settle([call_number])
            else:
                self._ledger.abandon([call_number])
            raise
        answer.call_number = call_number
        return answer

    async def models(self) -> Sequence[str]:
        """The names of the inner provider's models."""
        return await self._inner.models()

    async def close(self) -> None:
        """Closes the inner provider."""
        await self._inner.close()
