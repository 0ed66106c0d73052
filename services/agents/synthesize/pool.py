"""The pool of a reference script (ABSEval, section 3.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.judge.excerpts import Excerpt, ExcerptLimits, pooled_excerpt
from dramaturg.judge.steps import ParsedCandidate, parse_candidate


@dataclass(frozen=True)
class Pool:
    """The candidates in the prompt."""

    ids: tuple[str, ...]
    """Their ids, sorted. All ids of equal candidates are listed, although only one is shown."""
    excerpt: Excerpt
    """The excerpts of the candidates, labelled by number, without their writers."""


def draw_pool(candidates: Iterable[Candidate], limits: ExcerptLimits) -> Pool:
    """Selects the pool from the candidates of a task.

    Empty candidates are omitted, and equal ones are shown once. The order is that of their hashes, so that
    equal pools make equal prompts and no writer has a fixed place. Candidates that exceed the rest of
    ``limits.pool`` are omitted; only a first candidate that exceeds the whole limit is truncated.
    """
    groups: dict[str, list[ParsedCandidate]] = {}
    for read in map(parse_candidate, candidates):
        if read.reading != verdict_pb2.READING_EMPTY:
            groups.setdefault(_hash(read), []).append(read)
    ids: list[str] = []
    excerpts: list[Excerpt] = []
    remaining = limits.pool
    for _, equals in sorted(groups.items()):
        length = sum(map(len, _content(equals[0])))
        if excerpts and length > remaining:
            continue
        remaining -= length
        ids += [read.id for read in equals]
        excerpts.append(pooled_excerpt(len(excerpts) + 1, equals[0], limits))
    fences = tuple(fenced for excerpt in excerpts for fenced in excerpt.fences)
    return Pool(tuple(sorted(ids)), Excerpt(fences))


def _content(read: ParsedCandidate) -> tuple[str, ...]:
    return read.steps or (read.text,)


def _hash(read: ParsedCandidate) -> str:
    digest = hashlib.sha256()
    for part in _content(read):
        # The length prefix distinguishes ("ab", "c") from ("a", "bc").
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()
