"""The identities of the judges of runs."""

from __future__ import annotations

from gateway.runs.records import SeenJudge
from gateway.runs.store import RunStore
from tests.support.runs import create

OLD = SeenJudge("critic", "theirs", "llm-critic", "1.0")
NEW = SeenJudge("critic", "theirs", "llm-critic", "1.1")


def versions(store: RunStore, run_id: str = "run") -> list[tuple[str, str]]:
    return [(one.judge, one.version) for one in store.judges.of_runs([run_id]).get(run_id, [])]


def test_a_new_identity_returns_the_others_of_the_judge_once(store: RunStore) -> None:
    create(store)
    create(store, "other")
    assert not store.judges.note("run", OLD)
    assert not store.judges.note("run", SeenJudge("critic", "ours", "llm-critic", "0.9"))
    assert not store.judges.note("other", NEW)
    assert [one.version for one in store.judges.note("run", NEW)] == ["1.0"]
    assert not store.judges.note("run", NEW)
    assert not store.judges.note("run", OLD)
    assert versions(store) == [("ours", "0.9"), ("theirs", "1.0"), ("theirs", "1.1")]
    assert versions(store, "other") == [("theirs", "1.1")]
    assert all(one.time is not None for one in store.judges.of_runs(["run"])["run"])


def test_the_identities_are_deleted_with_the_run(store: RunStore) -> None:
    create(store)
    store.judges.note("run", OLD)
    store.runs.delete("run")
    assert not versions(store)
    assert not store.judges.note("run", NEW)
    assert not store.judges.note("absent", NEW)
