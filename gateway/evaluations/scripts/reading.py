"""Reads the candidates of a request, long ones in processes of their own.

A thread that parses for long slows every other thread of the gateway, since each waits for the interpreter
whenever it returns from a system call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.judge.steps import ParsedCandidate, parse_candidate
from dramaturg.service.threads import MAX_INLINE_LENGTH
from gateway.processes.pool import ProcessPool, no_answer
from gateway.processes.process import Ask, ProcessLimits

PARSER_PROCESSES = 2
"""The processes of a gateway that parse long candidates. One tenant has one at most."""
PARSER_LIMITS = ProcessLimits(128 << 20, modules=(__name__,))


async def read_candidates(
    candidates: Sequence[Candidate], processes: ProcessPool, tenant: str
) -> Sequence[ParsedCandidate]:
    """Reads the candidates of a request: short ones here, others in processes, one turn for each.

    The processes serve all requests. One request with many long candidates delays another by one of them.

    Args:
        candidates: The candidates.
        processes: The processes.
        tenant: The tenant that they parse for.
    """
    if sum(len(candidate.text) for candidate in candidates) <= MAX_INLINE_LENGTH:
        return [*map(parse_candidate, candidates)]
    found: list[ParsedCandidate] = []
    part: list[Candidate] = []
    length = 0
    for candidate in candidates:
        part.append(candidate)
        length += len(candidate.text)
        if length > MAX_INLINE_LENGTH:
            found += await _read_elsewhere(part, processes, tenant)
            part, length = [], 0
    return [*found, *map(parse_candidate, part)]


async def _read_elsewhere(
    candidates: Sequence[Candidate], processes: ProcessPool, tenant: str
) -> list[ParsedCandidate]:
    texts = [candidate.text for candidate in candidates]
    content = await processes.result(tenant, no_answer, parse_texts, texts)
    return [
        # A candidate with separate steps has no text, and is not parsed.
        ParsedCandidate(candidate.id, tuple(steps), candidate.text, reading, preamble, notes)
        if candidate.WhichOneof("content") != "script"
        else parse_candidate(candidate)
        for candidate, (steps, reading, preamble, notes) in zip(candidates, json.loads(content), strict=True)
    ]


def parse_texts(ask: Ask, texts: Sequence[str]) -> Iterator[bytes]:
    """The task of a process: the fields of the parsed texts, as JSON."""
    del ask
    parsed = [parse_candidate(Candidate(text=text)) for text in texts]
    yield json.dumps([(one.steps, one.reading, one.preamble, one.notes) for one in parsed]).encode()
