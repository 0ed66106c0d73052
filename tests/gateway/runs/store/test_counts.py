"""Whatever is done in whatever order, the counts are those of what is there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_REFUSED,
    ABSTAIN_REASON_TIMED_OUT,
    OUTCOME_ABSTAIN,
    AbstainReason,
)
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_SUCCEEDED,
    DatasetManifest,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RerunScope
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswer
from dramaturg.results.names import abstention_name
from dramaturg.results.rows import flatten
from gateway.runs.records import RunRecord, SampleOutcome
from gateway.runs.store import RunStore, open_store
from tests.support.runs import create, failed, invalid_row, judged, rows, sample_rows

ROOT = Path(__file__).resolve().parents[4]

_indices = st.lists(st.integers(0, 11), max_size=6)
_verdicts = st.dictionaries(
    st.sampled_from("mno"),
    st.lists(st.one_of(st.booleans(), st.sampled_from([1, 4, 6])), max_size=3),
    max_size=3,
)
_gold_answers = st.sampled_from(
    [
        None,
        GoldAnswer(),
        GoldAnswer(failure="no", failure_reason=ABSTAIN_REASON_TIMED_OUT),
        GoldAnswer(failure="no", failure_reason=ABSTAIN_REASON_REFUSED),
        GoldAnswer(failure="no"),
    ]
)
_outcomes = st.lists(
    st.one_of(
        st.builds(failed, st.integers(0, 11)),
        st.builds(judged, st.integers(0, 11), _verdicts, gold_answer=_gold_answers),
    ),
    max_size=6,
)


class Counting(RuleBasedStateMachine):
    """A run, and what must be true of it after every step."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.store: RunStore = open_store(f"sqlite:///{self._folder.name}/runs.sqlite3")
        self.spent = 0
        self.interrupted = 0
        self.begun: dict[int, str] = {}

    def teardown(self) -> None:
        self.store.close()
        self._folder.cleanup()

    @property
    def run(self) -> RunRecord:
        run = self.store.runs.get("run")
        assert run is not None
        return run

    @initialize()
    def start(self) -> None:
        create(self.store)
        self.store.runs.set_manifest("run", DatasetManifest(sha256="x"))
        self.store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])

    @rule(indices=_indices, broken=_indices)
    def read(self, indices: list[int], broken: list[int]) -> None:
        self.store.samples.add("run", sample_rows([*rows(indices), *map(invalid_row, broken)]))

    @rule(indices=_indices, executor=st.sampled_from(["g1", "g2"]))
    def take(self, indices: list[int], executor: str) -> None:
        for work in self.store.samples.take("run", indices, executor):
            self.interrupted += work.index in self.begun
            self.begun[work.index] = executor

    @rule(indices=_indices)
    def release(self, indices: list[int]) -> None:
        self.store.samples.release("run", indices)
        for index in indices:
            self.begun.pop(index, None)

    @rule(outcomes=_outcomes, attempts_ago=st.sampled_from([0, 0, 0, 1]))
    def finish(self, outcomes: list[SampleOutcome], attempts_ago: int) -> None:
        pending = set(self.store.samples.next_pending("run", -1, 99))
        if attempts_ago == 0:
            last = {outcome.sample.index: outcome for outcome in outcomes}
            for index in pending & last.keys():
                self.spent += last[index].usage.prompt_token_count
                self.begun.pop(index, None)
        self.store.attempts.finish("run", self.run.attempt - attempts_ago, outcomes)

    @rule()
    @precondition(lambda self: self.run.state == RUN_STATE_RUNNING)
    def end(self) -> None:
        self.store.runs.change_state("run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])

    @rule(scope=st.sampled_from(RerunScope.values()))
    def begin_again(self, scope: RerunScope.ValueType) -> None:
        before = set(self.store.samples.next_pending("run", -1, 99))
        if self.store.attempts.begin("run", scope) is not None:
            # Of what was begun and is in no scope nothing is left; what is in one starts afresh.
            self.begun = {}
            assert before <= set(self.store.samples.next_pending("run", -1, 99))

    @invariant()
    def counts_are_those_of_the_samples(self) -> None:
        if self.store.runs.get("run") is None:
            return
        counts = self.run.counts
        samples = self.store.samples.page("run", after=-1, limit=99)
        succeeded = [sample for sample in samples if sample.state == SAMPLE_STATE_SUCCEEDED]
        results = [result for sample in succeeded for result in flatten(sample)]
        reasons = Counter(
            AbstainReason.Name(result.abstain_reason).removeprefix("ABSTAIN_REASON_")
            for result in results
            if result.outcome == OUTCOME_ABSTAIN
        )
        assert counts.samples == len(samples)
        assert counts.succeeded == len(succeeded)
        assert counts.failed == sum(sample.state == SAMPLE_STATE_FAILED for sample in samples)
        assert counts.judgements == len(results)
        assert counts.abstentions == sum(reasons.values())
        assert dict(counts.abstentions_by_reason) == dict(reasons)
        gold_answers = [one.scripts.gold_answer for one in succeeded if one.scripts.HasField("gold_answer")]
        missing = Counter(abstention_name(one.failure_reason) for one in gold_answers if one.failure)
        assert counts.gold_answers.sample_count == len(gold_answers)
        assert counts.gold_answers.missing_count == missing.total()
        assert dict(counts.gold_answers.missing_by_reason) == missing
        assert counts.usage.prompt_token_count == self.spent
        assert counts.interrupted == self.interrupted
        assert self.store.samples.running("run") == len(self.begun)

    @invariant()
    def results_are_those_of_the_samples(self) -> None:
        listed = [result for _, result in self.store.results.page("run", after=(-1, -1), limit=999)]
        assert listed == [r for s in self.store.samples.page("run", after=-1, limit=99) for r in flatten(s)]


@pytest.mark.slow
def test_counts_are_kept_through_any_sequence_of_steps() -> None:
    run_state_machine_as_test(Counting, settings=settings(max_examples=30, stateful_step_count=20))


def test_outcomes_that_come_from_two_gateways_count_once(store: RunStore) -> None:
    create(store, samples=40)
    outcomes = [judged(index, {"m": [True, False]}) for index in range(40)]

    def finish(start: int) -> None:
        for index in [*range(start, 40), *range(start)]:
            store.attempts.finish("run", 1, outcomes[index : index + 3])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(finish, [0, 0, 13, 27]))
    run = store.runs.get("run")
    assert run is not None
    assert (run.counts.succeeded, run.counts.judgements) == (40, 80)
    assert run.counts.usage.prompt_token_count == 200


_FINISHING = """
import sys
from gateway.runs.store import open_store
from tests.support.runs import judged
store = open_store(sys.argv[1])
for start in range(0, 60, 5):
    done = [judged(index, {"m": [True, False]}) for index in range(start, start + 5)]
    store.attempts.finish("run", 1, done)
    print(start)
"""


@pytest.mark.slow
def test_outcomes_that_come_from_two_processes_count_once(postgres_url: str) -> None:
    store = open_store(postgres_url)
    create(store, samples=60)
    command = [sys.executable, "-c", _FINISHING, postgres_url]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    run = store.runs.get("run")
    assert run is not None
    assert (run.counts.succeeded, run.counts.judgements) == (60, 120)
    assert run.counts.usage.prompt_token_count == 300
    store.close()


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_counts_that_are_right(store_url: str) -> None:
    store = open_store(store_url)
    create(store, samples=60)
    store.close()
    # Three lives, each killed somewhere in the middle of its work.
    for lines in (2, 3, 1):
        command = [sys.executable, "-u", "-c", _FINISHING, store_url]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(lines):
                process.stdout.readline()
            process.kill()
    store = open_store(store_url)
    run = store.runs.get("run")
    assert run is not None
    done = store.samples.page("run", after=-1, limit=99, states=[SAMPLE_STATE_SUCCEEDED])
    assert done
    assert len(done) % 5 == 0
    assert run.counts.succeeded == len(done)
    assert run.counts.judgements == len(store.results.page("run", after=(-1, -1), limit=999)) == 2 * len(done)
    assert run.counts.usage.prompt_token_count == 5 * len(done)
    store.close()
