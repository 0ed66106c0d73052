"""Runs and samples for the tests of the store and of RunService."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_INVALID_ARGUMENT, STATUS_CODE_UNAVAILABLE
from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_TIMED_OUT,
    ABSTAIN_REASON_UNSPECIFIED,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    AbstainReason,
    Assessment,
    Verdict,
)
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_SUCCEEDED,
    Dataset,
    RunSample,
    RunSpec,
    SampleError,
    ScriptsRunOptions,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    CandidateAssessment,
    CandidateResult,
    GoldAnswer,
    ScriptsResult,
)
from dramaturg.results.rows import flatten
from gateway.runs.records import NewRun, NewSample, SampleOutcome, SampleRow
from gateway.runs.store import RunStore
from gateway.runs.store.samples import sample_row

TIMED_OUT = ABSTAIN_REASON_TIMED_OUT


def spec(**fields: Any) -> RunSpec:
    """A run of scripts."""
    return RunSpec(
        **{"dataset": Dataset(content=b""), "scripts": ScriptsRunOptions(), "display_name": "a run", **fields}
    )


def create(store: RunStore, run_id: str = "run", samples: int = 0, **fields: Any) -> None:
    """Creates a run with so many pending samples."""
    store.runs.create(NewRun(**{"id": run_id, "tenant": "", "spec": spec(), **fields}))
    if samples:
        store.samples.add(run_id, sample_rows(rows(range(samples))))


def sample_rows(samples: Iterable[NewSample]) -> list[SampleRow]:
    """The rows of the store of samples."""
    return list(map(sample_row, samples))


def rows(indices: Iterable[int]) -> list[NewSample]:
    """Valid rows."""
    return [
        NewSample(
            index=index,
            line=index + 1,
            sample_id=f"s{index}",
            tags={"level": "easy" if index % 2 else "hard"},
            request=f"request {index}".encode(),
        )
        for index in indices
    ]


def invalid_row(index: int) -> NewSample:
    """A row that is no request."""
    failure = RunSample(
        index=index,
        line=index + 1,
        state=SAMPLE_STATE_FAILED,
        error=SampleError(code=STATUS_CODE_INVALID_ARGUMENT, message="no request"),
    )
    return NewSample(index=index, line=index + 1, sample_id="", tags={}, request=b"", failure=failure)


def judged(
    index: int,
    said: dict[str, Sequence[bool | AbstainReason.ValueType]],
    tokens: int = 5,
    gold_answer: GoldAnswer | None = None,
) -> SampleOutcome:
    """A sample with a candidate of each model and these verdicts by criteria c0, c1, ..."""
    candidates = []
    for model, verdicts in said.items():
        made = [_verdict(place, one) for place, one in enumerate(verdicts)]
        usage = Usage(prompt_token_count=tokens, provider_call_count=1)
        assessed = CandidateAssessment(
            candidate_id=f"by {model}",
            role="critic",
            judge="strict",
            assessment=Assessment(verdicts=made, provenance=Provenance(name="critic", usage=usage)),
        )
        candidates.append(
            CandidateResult(candidate_id=f"by {model}", model=model, verdicts=made, assessments=[assessed])
        )
    sample = RunSample(
        index=index,
        line=index + 1,
        sample_id=f"s{index}",
        tags={"level": "easy" if index % 2 else "hard"},
        state=SAMPLE_STATE_SUCCEEDED,
        attempt_count=1,
        scripts=ScriptsResult(candidates=candidates, gold_answer=gold_answer),
    )
    return SampleOutcome(
        sample, flatten(sample), Usage(prompt_token_count=tokens * len(said), provider_call_count=len(said))
    )


def failed(index: int, tokens: int = 1) -> SampleOutcome:
    """A sample that failed for good."""
    sample = RunSample(
        index=index,
        line=index + 1,
        sample_id=f"s{index}",
        state=SAMPLE_STATE_FAILED,
        attempt_count=3,
        error=SampleError(code=STATUS_CODE_UNAVAILABLE, message="nobody there"),
    )
    return SampleOutcome(sample, [], Usage(prompt_token_count=tokens))


@contextmanager
def lost_acknowledgements(*, always: bool = False) -> Iterator[None]:
    """Commits happen, and the answer to each second one does not come, the first included.

    Args:
        always: Whether the answer to none comes.
    """
    with (
        mock.patch.object(SQLiteDialect_pysqlite, "do_commit", _lossy(SQLiteDialect_pysqlite, always)),
        mock.patch.object(PGDialect_psycopg, "do_commit", _lossy(PGDialect_psycopg, always)),
    ):
        yield


def _lossy(dialect: Any, always: bool) -> Callable[[Any, Any], None]:
    commit, commits = dialect.do_commit, 0
    error = psycopg.OperationalError if dialect is PGDialect_psycopg else sqlite3.OperationalError

    def do_commit(self: Any, connection: Any) -> None:
        nonlocal commits
        commit(self, connection)
        commits += 1
        if always or commits % 2:
            raise error("the connection was closed unexpectedly")

    return do_commit


def _verdict(place: int, said: bool | AbstainReason.ValueType) -> Verdict:
    abstains = not isinstance(said, bool)
    return Verdict(
        criterion=f"c{place}",
        outcome=OUTCOME_ABSTAIN if abstains else OUTCOME_PASS if said else OUTCOME_FAIL,
        abstain_reason=AbstainReason.ValueType(said) if abstains else ABSTAIN_REASON_UNSPECIFIED,
        rationale=f"because of {place}",
    )
