"""The identities of the judges of runs."""

from __future__ import annotations

from gateway.runs.records import SeenJudge
from gateway.runs.store import RunStore
from tests.support.runs import create

OLD = SeenJudge("critic", "theirs", "llm-critic", "1.0")
NEW = SeenJudge("critic", "theirs", "llm-critic", "1.1")


def versions(store: RunStore, run_id: str = "run") -> list[tuple[str, str]]:
    return [(one.judge, one.version) for one in store.seen_judges(run_id)]


def test_a_new_identity_returns_the_others_of_the_judge_once(store: RunStore) -> None:
    create(store)
    create(store, "other")
    assert not store.note_judge("run", OLD)
    assert not store.note_judge("run", SeenJudge("critic", "ours", "llm-critic", "0.9"))
    assert not store.note_judge("other", NEW)
    assert [one.version for one in store.note_judge("run", NEW)] == ["1.0"]
    assert not store.note_judge("run", NEW)
    assert not store.note_judge("run", OLD)
    assert versions(store) == [("ours", "0.9"), ("theirs", "1.0"), ("theirs", "1.1")]
    assert versions(store, "other") == [("theirs", "1.1")]
    assert all(one.time is not None for one in store.seen_judges("run"))


def test_the_identities_are_deleted_with_the_run(store: RunStore) -> None:
    create(store)
    store.note_judge("run", OLD)
    store.delete_run("run")
    assert not versions(store)
    assert not store.note_judge("run", NEW)
    assert not store.note_judge("absent", NEW)
