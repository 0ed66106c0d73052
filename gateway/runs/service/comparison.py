"""Comparisons of runs of one gateway and the agreement of judges, as tasks of processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.alignment.v1 import accuracy_pb2, compare_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.results.setups import setup_changes
from dramaturg.service.errors import invalid
from dramaturg.summaries.comparison import (
    CRITERION,
    SAMPLE,
    RunsError,
    comparison,
    outcome_flips,
    read_samples,
)
from gateway.evaluations.judge_agreement import JudgeAgreement
from gateway.evaluations.statistics import Statistics
from gateway.processes.process import Ask
from gateway.runs.service.results import all_samples, reads_store
from gateway.runs.store import RunStore

MAX_FLIPS = 1000
"""The most flips of a response."""

_DEFAULT_POWER = 0.8


@reads_store
def compare_runs(
    ask: Ask, request: pb.CompareRunsRequest, run_ids: Sequence[str], store: RunStore
) -> Iterator[bytes]:
    """Compares runs with the first of them; yields a CompareRunsResponse.

    Raises:
        ServiceError: INVALID_ARGUMENT: the runs cannot be compared; FAILED_PRECONDITION: AlignmentService
            does not answer.
    """
    by_sample = request.match == pb.ITEM_MATCH_SAMPLE
    try:
        runs = [read_samples(all_samples(one, store), one, by_sample=by_sample) for one in run_ids]
        compared, left_out = comparison(runs, None)
    except RunsError as error:
        raise invalid("run_ids", str(error)) from error
    compared.MergeFrom(_choices(request))
    response = Statistics(ask).required_alignment("CompareRuns", compared)
    flips = list(outcome_flips(runs))
    made = pb.CompareRunsResponse(
        comparison=response,
        flips=[
            pb.OutcomeFlip(
                run_id=run.name,
                sample_id=key[0],
                subject=key[1],
                aspect=key[2],
                baseline_outcome=before.outcome(),
                outcome=after.outcome(),
            )
            for run, key, before, after in flips[:MAX_FLIPS]
        ],
        flip_count=len(flips),
        left_out=left_out,
        setup_changes=setup_changes({run.name: run.setups for run in runs}),
    )
    yield made.SerializeToString()


@reads_store
def measure_judge_agreement(
    ask: Ask, request: pb.MeasureJudgeAgreementRequest, run_ids: Sequence[str], store: RunStore
) -> Iterator[bytes]:
    """The agreement of the judges of a run, or of several runs, as a MeasureJudgeAgreementResponse.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED: too many items; FAILED_PRECONDITION: no AlignmentService.
    """
    agreement = JudgeAgreement(request)
    by_sample = request.match == pb.ITEM_MATCH_SAMPLE
    for run_id in run_ids:
        for sample in all_samples(run_id, store):
            if len(run_ids) == 1:
                agreement.add(sample)
            else:
                agreement.add_run(run_id, sample, by_sample=by_sample)
    yield agreement.response(Statistics(ask)).SerializeToString()


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
        anytime=request.anytime,
    )
    if request.HasField("largest_task_loss"):
        made.largest_task_loss = request.largest_task_loss
    if request.HasField("confidence_level"):
        made.confidence_level = request.confidence_level
    return made
