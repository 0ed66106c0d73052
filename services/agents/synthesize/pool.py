"""The pool that a reference script is learned from (ABSEval, section 3.2)."""

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
    """The candidates that are learned from."""

    ids: tuple[str, ...]
    """Their ids, sorted. Of candidates with equal content all are named, though one is shown."""
    excerpt: Excerpt
    """What is shown of them: each by a number, never by who wrote it."""


def draw_pool(candidates: Iterable[Candidate], limits: ExcerptLimits) -> Pool:
    """Draws the pool from the candidates of a task.

    Empty candidates are left out and equal ones shown once. The order is that of their hashes, so that
    equal pools make equal prompts and no writer stands first. A candidate that no longer fits within
    ``limits.pool`` is left out whole; only one that does not even fit alone, as the first, is cut.
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
        # The length before each part keeps ("ab", "c") from ("a", "bc").
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()
