"""Comparisons of runs of one gateway."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import grpc

from dramaturg.api.alignment.v1 import accuracy_pb2, compare_pb2
from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.results.names import abstention_name
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.summaries.comparison import (
    CRITERION,
    SAMPLE,
    Run,
    RunsError,
    comparison,
    outcome_flips,
    read_samples,
)
from dramaturg.summaries.judgements import Judgement
from gateway.evaluations.summary import Statistics
from gateway.runs.records import RunRecord
from gateway.runs.service.results import all_samples
from gateway.runs.store.base import RunStore
from gateway.runs.store_calls import ServiceCaller

MAX_FLIPS = 1000
"""The most flips of a response."""

_DEFAULT_POWER = 0.8


async def compare_runs(
    request: pb.CompareRunsRequest,
    records: Sequence[RunRecord],
    store: RunStore,
    caller: ServiceCaller,
    statistics: Statistics,
) -> pb.CompareRunsResponse:
    """Compares runs with the first of them.

    Raises:
        ServiceError: INVALID_ARGUMENT: the runs cannot be compared; FAILED_PRECONDITION: AlignmentService
            does not answer.
    """
    by_sample = request.match == pb.ITEM_MATCH_SAMPLE
    try:
        runs = [
            await caller.call_heavy(record.tenant, _read, record.id, store, by_sample) for record in records
        ]
        compared, left_out = await caller.call_heavy(records[0].tenant, comparison, runs, None)
    except RunsError as error:
        raise invalid("run_ids", str(error)) from error
    compared.MergeFrom(_choices(request))
    response = await statistics.alignment("CompareRuns", compared)
    if response is None:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            error_reason_pb2.ERROR_REASON_ROLE_UNBOUND,
            statistics.problems[0],
        )
    flips = await caller.call_heavy(records[0].tenant, lambda: list(outcome_flips(runs)))
    return pb.CompareRunsResponse(
        comparison=response,
        flips=[
            pb.OutcomeFlip(
                run_id=run.name,
                sample_id=key[0],
                subject=key[1],
                aspect=key[2],
                baseline_outcome=_outcome(before),
                outcome=_outcome(after),
            )
            for run, key, before, after in islice(flips, MAX_FLIPS)
        ],
        flip_count=len(flips),
        left_out=left_out,
    )


def _read(run_id: str, store: RunStore, by_sample: bool) -> Run:
    return read_samples(all_samples(run_id, store), run_id, by_sample=by_sample)


def _choices(request: pb.CompareRunsRequest) -> compare_pb2.CompareRunsRequest:
    made = compare_pb2.CompareRunsRequest(
        group_tag=CRITERION,
        cluster_tag=SAMPLE,
        margin=request.margin,
        permutation_count=request.permutation_count,
        resample_count=request.resample_count,
        seed=request.seed,
        power=request.power if request.HasField("power") else _DEFAULT_POWER,
        abstention_policy=request.abstention_policy or accuracy_pb2.ABSTENTION_POLICY_WRONG,
        gate_scope=request.gate_scope,
    )
    if request.HasField("confidence_level"):
        made.confidence_level = request.confidence_level
    return made


def _outcome(judgement: Judgement) -> str:
    if judgement.value is None:
        return abstention_name(judgement.reason)
    if isinstance(judgement.value, bool):
        return "passed" if judgement.value else "failed"
    return f"{judgement.value:g}"
