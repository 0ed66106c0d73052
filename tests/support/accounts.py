"""What a model was paid for more than once, call by call, and what the ledger says of each.

The model's server knows a call by its body, the ledger by the fingerprint of the request. What ties them
together is the name under which the model answers: it is the mark of the body, and the provenance of every
sample tells it beside the fingerprint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1.provenance_pb2 import CompletionReference
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.generation.v1.generation_service_pb2 import GetLedgerStatusRequest, LedgerStatus
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from tests.support.openai_server import Answer, Body, fingerprint
from tests.support.scripted_model import judge

NEAR_SECONDS = 5.0
"""A call that was under way when a process died was sent so long before it at most, or so long after it by a
process that had not heard of it yet."""


def mark_of(body_fingerprint: str) -> str:
    """The mark of a body: short, since the ledger keeps it with every completion."""
    return body_fingerprint[:12]


def marked(body: Body) -> Answer:
    """Answers as the scripted judge, or refuses to judge, under the name of the body's mark.

    A refusal is paid and not kept, so that it is bought again if its sample is evaluated again.
    """
    mark = mark_of(fingerprint(body))
    writes = "considerations" in body["response_format"]["json_schema"]["schema"]["properties"]
    if not writes and int(mark, 16) % REFUSED_IN == 0:
        return Answer(refusal="No.", model=mark)
    return Answer(judge(body), model=mark)


REFUSED_IN = 40
"""One in so many judgements is refused."""


@dataclass(frozen=True)
class Accounts:
    """Calls by the ledger's fingerprint."""

    twice: Counter[str]
    """How often each was paid for beyond once."""
    reported: Counter[str]
    """How often the ledger says that each may have been paid for in vain: it was sent and not kept, or it was
    refused and sent again."""
    strays: tuple[str, ...]
    """Of the reported ones, those that were under way when nothing had died."""

    @property
    def unexplained(self) -> Counter[str]:
        """What was paid for twice although it was not under way at a kill."""
        return self.twice - (self.reported - Counter(self.strays))


async def settle(
    answered: Counter[str],
    generation: str,
    samples: Iterable[RunSample],
    deaths: Iterable[tuple[float, float]],
) -> Accounts:
    """Compares what the model was paid for with what the ledger reports.

    Args:
        answered: How often the model answered each body, by its fingerprint.
        generation: The address of the generation service.
        samples: All samples of the run that asked, all done.
        deaths: When something was killed: just before and just after, in seconds since 1970.
    """
    keys = {one.answered_model: one.fingerprint for sample in samples for one in _completions(sample)}
    twice = {keys[mark_of(body)]: count - 1 for body, count in answered.items() if count > 1}
    moments = list(deaths)
    lost = (await _ledger_status(generation)).lost_calls
    strays = tuple(
        call.fingerprint
        for call in lost
        if not any(
            before - NEAR_SECONDS < call.send_time.ToMicroseconds() / 1e6 < after + NEAR_SECONDS
            for before, after in moments
        )
    )
    return Accounts(Counter(twice), Counter(call.fingerprint for call in lost), strays)


async def _ledger_status(target: str) -> LedgerStatus:
    async with grpc.aio.insecure_channel(target) as channel:
        response = await GenerationServiceStub(channel).GetLedgerStatus(GetLedgerStatusRequest())
    status: LedgerStatus = response.status
    return status


def _completions(message: Message) -> Iterator[CompletionReference]:
    """Every model call that a message tells of, at any depth."""
    if isinstance(message, CompletionReference):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if field.is_repeated else [value]:
                yield from _completions(part)
