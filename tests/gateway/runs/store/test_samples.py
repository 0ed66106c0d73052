from __future__ import annotations

from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_INVALID_ARGUMENT, STATUS_CODE_UNAVAILABLE
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_NOT_SUPPORTED
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_PENDING,
    SAMPLE_STATE_SUCCEEDED,
    DatasetManifest,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import (
    RERUN_SCOPE_ALL,
    RERUN_SCOPE_FAILED,
    RERUN_SCOPE_FAILED_OR_ABSTAINED,
    RERUN_SCOPE_UNSPECIFIED,
    RerunScope,
)
from gateway.runs.records import Counts
from gateway.runs.store import RunStore
from tests.support.runs import TIMED_OUT, create, failed, invalid_row, judged, rows, sample_rows, spec


def counts(store: RunStore) -> Counts:
    run = store.runs.get("run")
    assert run is not None
    return run.counts


def start(store: RunStore) -> None:
    store.runs.set_manifest("run", DatasetManifest(sha256="x"))
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])


def end(store: RunStore) -> None:
    store.runs.change_state("run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])


def test_a_dataset_may_be_read_again(store: RunStore) -> None:
    create(store)
    store.samples.add("run", sample_rows([*rows([0, 1]), invalid_row(2)]))
    store.samples.add("run", sample_rows([*rows([1]), invalid_row(2), *rows([3, 3])]))
    assert (counts(store).samples, counts(store).failed) == (4, 1)
    assert store.samples.next_pending("run", -1, 10) == [0, 1, 3]
    assert store.samples.next_pending("run", 0, 1) == [1]


def test_a_sample_is_taken_with_its_request(store: RunStore) -> None:
    create(store, samples=3)
    (work,) = store.samples.take("run", [2], "gateway-1")
    assert (work.index, work.line, work.sample_id, work.request) == (2, 3, "s2", b"request 2")
    assert work.tags == {"level": "hard"}
    assert work.crashes == 0
    assert store.samples.running("run") == 1


def test_a_sample_interrupted_by_a_crash_is_counted(store: RunStore) -> None:
    create(store, samples=3)
    store.samples.take("run", [0, 1], "gateway-1")
    assert counts(store).interrupted == 0
    (again,) = store.samples.take("run", [0], "gateway-2")
    assert again.crashes == 1
    # So it is when one and the same gateway begins it again, after a restart.
    assert store.samples.take("run", [0], "gateway-2")[0].crashes == 2
    store.samples.release("run", [1])
    assert store.samples.take("run", [1], "gateway-2")[0].crashes == 0
    assert counts(store).interrupted == 2


def test_completed_samples_are_not_taken(store: RunStore) -> None:
    create(store, samples=3)
    store.attempts.finish("run", 1, [judged(1, {"m": [True]})])
    assert [work.index for work in store.samples.take("run", [0, 1, 2], "g")] == [0, 2]
    assert store.samples.next_pending("run", -1, 10) == [0, 2]


def test_outcomes_are_counted_once(store: RunStore) -> None:
    create(store, samples=3)
    for _ in range(2):
        store.attempts.finish("run", 1, [judged(0, {"m": [True, TIMED_OUT], "n": [False, True]}), failed(1)])
    store.attempts.finish("run", 2, [judged(2, {"m": [True]})])  # an attempt that there is not
    found = counts(store)
    assert (found.samples, found.succeeded, found.failed) == (3, 1, 1)
    assert (found.judgements, found.abstentions, dict(found.abstentions_by_reason)) == (
        4,
        1,
        {"TIMED_OUT": 1},
    )
    assert found.usage.prompt_token_count == 11
    assert {model: usage.prompt_token_count for model, usage in store.results.model_usage("run").items()} == {
        "m": 5,
        "n": 5,
    }


def test_samples_are_listed_with_what_came_of_them(store: RunStore) -> None:
    create(store, samples=3)
    store.samples.add("run", sample_rows([invalid_row(3)]))
    outcome = judged(1, {"m": [True]})
    store.attempts.finish("run", 1, [outcome, failed(2)])
    listed = store.samples.page("run", after=-1, limit=10)
    assert [sample.state for sample in listed] == [
        SAMPLE_STATE_PENDING,
        SAMPLE_STATE_SUCCEEDED,
        SAMPLE_STATE_FAILED,
        SAMPLE_STATE_FAILED,
    ]
    assert listed[1] == outcome.sample
    assert (listed[0].sample_id, listed[0].tags["level"], listed[0].line) == ("s0", "hard", 1)
    assert [sample.error.code for sample in listed[2:]] == [
        STATUS_CODE_UNAVAILABLE,
        STATUS_CODE_INVALID_ARGUMENT,
    ]
    pages = store.samples.page("run", after=0, limit=2), store.samples.page("run", after=2, limit=2)
    assert [sample.index for page in pages for sample in page] == [1, 2, 3]
    assert [s.index for s in store.samples.page("run", after=-1, limit=9, states=[SAMPLE_STATE_FAILED])] == [
        2,
        3,
    ]


def again(store: RunStore, scope: RerunScope.ValueType, *, fresh: bool = False) -> list[int]:
    """The samples that a rerun begins anew, of six: three done, one failed, one not begun, one no request."""
    create(store, samples=5)
    store.samples.add("run", sample_rows([invalid_row(5)]))
    start(store)
    store.attempts.finish(
        "run",
        1,
        [
            judged(0, {"m": [True]}),
            judged(1, {"m": [TIMED_OUT, False]}),
            judged(2, {"m": [ABSTAIN_REASON_NOT_SUPPORTED]}),
            failed(3),
        ],
    )
    assert store.attempts.begin("run", scope) is None
    end(store)
    run = store.attempts.begin("run", scope, fresh=fresh)
    assert run is not None
    assert (run.state, run.attempt, run.end_time) == (RUN_STATE_RUNNING, 2, None)
    return list(store.samples.next_pending("run", -1, 10))


def test_a_rerun_of_what_failed(store: RunStore) -> None:
    assert again(store, RERUN_SCOPE_FAILED) == [3, 4]
    found = counts(store)
    assert (found.succeeded, found.failed, found.judgements) == (3, 1, 4)


def test_a_rerun_of_what_abstained_for_a_reason_that_may_pass(store: RunStore) -> None:
    assert again(store, RERUN_SCOPE_FAILED_OR_ABSTAINED) == [1, 3, 4]
    found = counts(store)
    assert (found.succeeded, found.failed, found.judgements) == (2, 1, 2)
    assert dict(found.abstentions_by_reason) == {"NOT_SUPPORTED": 1}


def test_a_rerun_is_of_that_by_default(store: RunStore) -> None:
    assert again(store, RERUN_SCOPE_UNSPECIFIED) == [1, 3, 4]


def test_a_rerun_of_all_leaves_out_rows_that_are_none(store: RunStore) -> None:
    assert again(store, RERUN_SCOPE_ALL, fresh=True) == [0, 1, 2, 3, 4]
    run = store.runs.get("run")
    assert run is not None
    assert run.repeat_offset == 1
    assert (run.counts.succeeded, run.counts.failed, run.counts.judgements) == (0, 1, 0)
    assert run.counts.usage.prompt_token_count == 16  # what was spent stays spent


def test_results_of_a_rerun_replace_the_earlier_ones_one_by_one(store: RunStore) -> None:
    again(store, RERUN_SCOPE_ALL)
    before = store.results.page("run", after=(-1, -1), limit=99)
    assert [key for key, _ in before] == [(0, 0), (1, 0), (1, 1), (2, 0)]
    earlier = store.samples.page("run", after=-1, limit=1)[0]
    assert (earlier.state, earlier.WhichOneof("result")) == (SAMPLE_STATE_PENDING, "scripts")
    store.attempts.finish("run", 2, [judged(1, {"m": [True]}), failed(0)])
    after = store.results.page("run", after=(-1, -1), limit=99)
    assert [key for key, _ in after] == [(1, 0), (2, 0)]
    store.attempts.finish("run", 1, [judged(2, {"m": [True]})])  # a gateway that knows of no rerun
    assert counts(store).succeeded == 1
    assert counts(store).failed == 2


def test_an_extension_replaces_the_spec(store: RunStore) -> None:
    create(store, samples=1)
    start(store)
    end(store)
    run = store.attempts.begin("run", RERUN_SCOPE_ALL, spec=spec(models=["new"]))
    assert run is not None
    assert list(run.spec.models) == ["new"]


def test_a_run_whose_dataset_was_not_read_to_its_end_is_prepared_again(store: RunStore) -> None:
    create(store, samples=1)
    store.runs.change_state("run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_PREPARING])
    run = store.attempts.begin("run", RERUN_SCOPE_ALL)
    assert run is not None
    assert run.state == RUN_STATE_PREPARING


def test_texts_of_any_kind_can_be_kept(store: RunStore) -> None:
    create(store, samples=1)
    outcome = judged(0, {'m\0"\u2028\U0001f600': [True]})
    store.attempts.finish("run", 1, [outcome])
    ((_, result),) = store.results.page("run", after=(-1, -1), limit=9)
    assert result.model == 'm\N{REPLACEMENT CHARACTER}"\u2028\U0001f600'
    assert store.samples.page("run", after=-1, limit=9)[0] == outcome.sample


def test_outcomes_of_a_paused_run_are_kept(store: RunStore) -> None:
    create(store, samples=1)
    start(store)
    store.runs.change_state("run", RUN_STATE_PAUSED, expected=[RUN_STATE_RUNNING])
    store.attempts.finish("run", 1, [judged(0, {"m": [True]})])
    assert counts(store).succeeded == 1


def test_a_deleted_run_is_gone(store: RunStore) -> None:
    create(store, samples=2500, request_id="q")
    create(store, "other", samples=3)
    store.attempts.finish("run", 1, [judged(0, {"m": [True]})])
    store.attempts.finish("other", 1, [judged(0, {"m": [True]})])
    store.runs.delete("run")
    assert store.runs.get("run") is None
    assert [run.id for run in store.runs.page("", limit=9)] == ["other"]
    store.attempts.finish("run", 1, [judged(1, {"m": [True]})])
    assert store.samples.take("run", [2], "g") == ()
    assert store.samples.next_pending("run", -1, 9) == []
    # Its names may be used again, by one that has nothing of it.
    create(store, samples=2, request_id="q")
    assert counts(store).samples == 2
    assert store.results.page("run", after=(-1, -1), limit=9) == []
    assert len(store.results.page("other", after=(-1, -1), limit=9)) == 1


def test_how_fast_a_run_goes(store: RunStore) -> None:
    create(store, samples=9)
    assert store.runs.rate("run", 60) is None
    start(store)
    assert store.runs.rate("run", 60) is None
    store.attempts.finish("run", 1, [judged(index, {"m": [True]}) for index in range(4)])
    rate = store.runs.rate("run", 60)
    assert rate is not None
    assert rate > 0
    store.runs.change_state("run", RUN_STATE_PAUSED, expected=[RUN_STATE_RUNNING])
    assert store.runs.rate("run", 60) is None
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PAUSED])
    end(store)
    store.attempts.begin("run", RERUN_SCOPE_ALL)
    assert store.runs.rate("run", 60) is None


def test_preparations_without_an_end_are_counted_until_a_row_is_added(store: RunStore) -> None:
    create(store)
    assert [store.runs.begin_preparation("run") for _ in range(3)] == [1, 2, 3]
    store.samples.add("run", sample_rows(rows([0, 1])))
    assert store.runs.begin_preparation("run") == 2
    store.samples.add("run", sample_rows(rows([0, 1])))
    assert store.runs.begin_preparation("run") == 3, "rows that the store has are no progress"
    store.runs.end_preparation("run")
    assert store.runs.begin_preparation("run") == 1
    assert store.runs.begin_preparation("absent") == 0


def test_samples_are_read_up_to_the_one_that_exceeds_a_size(store: RunStore) -> None:
    create(store, "run", 30)
    sizes = [sample.ByteSize() for sample in store.samples.page("run", after=-1, limit=30)]

    def read(max_bytes: int) -> list[int]:
        found = store.samples.page("run", after=-1, limit=30, max_bytes=max_bytes)
        return [sample.index for sample in found]

    assert read(0) == [0]
    assert read(sizes[0]) == [0, 1]
    assert read(sum(sizes[:15]) - 1) == [*range(15)]
    assert read(sum(sizes)) == [*range(30)]
