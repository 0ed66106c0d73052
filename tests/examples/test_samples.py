from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.judge import criteria
from dramaturg.judge.roles import ROLES, JudgeRole
from dramaturg.judge.sections import read_step_notes
from dramaturg.judge.steps import ParsedCandidate, parse_candidate
from dramaturg.service.validation import validate

SAMPLES = Path(__file__).resolve().parents[2] / "examples" / "scripts"
JUDGES = {
    name: role.criteria for name, role in ROLES.items() if isinstance(role, JudgeRole) and role.criteria
}

Key = tuple[str, str]


def read_rows(name: str) -> list[dict[str, Any]]:
    with (SAMPLES / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def requests() -> list[EvaluateScriptsRequest]:
    return [ParseDict(row, EvaluateScriptsRequest()) for row in read_rows("tasks.jsonl")]


@pytest.fixture(scope="module")
def scripts(requests: list[EvaluateScriptsRequest]) -> dict[Key, ParsedCandidate]:
    return {
        (request.task.id, candidate.id): parse_candidate(candidate)
        for request in requests
        for candidate in request.candidates
    }


@pytest.fixture(scope="module")
def labels() -> dict[Key, dict[str, Any]]:
    return {(row["task_id"], row["candidate_id"]): row for row in read_rows("labels.jsonl")}


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    return read_rows("answers.jsonl")


def test_walks_note_the_steps_that_cannot_be_done_as_they_stand(
    scripts: dict[Key, ParsedCandidate], answers: list[dict[str, Any]]
) -> None:
    walks = [row for row in answers if "walk" in row]
    assert {row["agent"] for row in walks} == {"execute"}
    assert len(walks) == 2
    for row in walks:
        steps = scripts[row["task_id"], row["candidate_id"]].steps
        notes = read_step_notes(row["walk"], len(steps))
        assert len(notes) == len(row["walk"]) > 0
        assert all(note.needs and note.outcome != verdict_pb2.OUTCOME_PASS for note in notes)


def judged(answers: list[dict[str, Any]]) -> Iterator[tuple[Key, str, dict[str, Any]]]:
    for row in answers:
        if row["agent"] in JUDGES and "raw" not in row["answer"]:
            yield (row["task_id"], row["candidate_id"]), row["agent"], row["answer"]


def test_there_are_eight_valid_tasks_with_four_candidates_each(
    requests: list[EvaluateScriptsRequest],
) -> None:
    assert len({request.task.id for request in requests}) == len(requests) == 8
    for request in requests:
        validate(request)
        assert [candidate.id for candidate in request.candidates] == ["a", "b", "c", "d"]
        levels = {1: "easy", 2: "medium", 3: "hard"}
        tags = {"topic": request.task.topic, "level": levels[len(request.task.constraints)]}
        assert dict(request.tags) == tags


def test_every_script_is_read_as_it_was_meant(scripts: dict[Key, ParsedCandidate]) -> None:
    prose = {key for key, script in scripts.items() if script.reading == verdict_pb2.READING_TEXT}
    assert prose == {("train-weekend", "b")}
    for key in scripts.keys() - prose:
        assert scripts[key].reading == verdict_pb2.READING_STEPS
        assert 5 <= len(scripts[key].steps) <= 12
    soup = scripts["soup", "b"].steps
    assert len(soup) == 7
    assert "2.5 cups" in soup[2]
    repair = scripts["puncture", "b"]
    assert len(repair.steps) == 8
    assert repair.preamble
    assert repair.notes.startswith("Note:")
    assert any("every criterion is True" in step for step in scripts["photo-backup", "d"].steps)


def test_labels_cover_every_candidate_and_criterion(
    scripts: dict[Key, ParsedCandidate], labels: dict[Key, dict[str, Any]]
) -> None:
    assert len(read_rows("labels.jsonl")) == 32
    assert labels.keys() == scripts.keys()
    for row in labels.values():
        assert tuple(row["labels"]) == criteria.ABSEVAL
        broken = {criterion for criterion, label in row["labels"].items() if label == "fail"}
        assert broken == {defect["criterion"] for defect in row["defects"]}
        assert set(row["labels"].values()) <= {"pass", "fail"}


def test_every_kind_of_defect_occurs_at_least_twice_and_some_scripts_have_none_or_several(
    labels: dict[Key, dict[str, Any]],
) -> None:
    kinds = Counter(defect["criterion"] for row in labels.values() for defect in row["defects"])
    assert all(kinds[criterion] >= 2 for criterion in criteria.ABSEVAL), kinds
    sizes = Counter(len(row["defects"]) for row in labels.values())
    assert sizes[0] >= 4
    assert sizes[2] >= 2


def test_defects_point_at_steps_that_exist(
    scripts: dict[Key, ParsedCandidate], labels: dict[Key, dict[str, Any]]
) -> None:
    for key, row in labels.items():
        for defect in row["defects"]:
            assert defect["note"]
            assert defect["steps"] == sorted(set(defect["steps"]))
            assert all(0 <= step < len(scripts[key].steps) for step in defect["steps"]), (key, defect)


def test_duplicates_are_planted_word_for_word_and_in_other_words(
    scripts: dict[Key, ParsedCandidate], labels: dict[Key, dict[str, Any]]
) -> None:
    verbatim = Counter(
        len({scripts[key].steps[step] for step in defect["steps"]}) == 1
        for key, row in labels.items()
        for defect in row["defects"]
        if defect["criterion"] == criteria.NO_DUPLICATE_STEPS
    )
    assert verbatim[True] >= 2
    assert verbatim[False] >= 2


def test_there_is_one_answer_of_every_agent(
    scripts: dict[Key, ParsedCandidate], answers: list[dict[str, Any]]
) -> None:
    given = Counter((row["task_id"], row.get("candidate_id", ""), row["agent"]) for row in answers)
    wanted = {(task, "", "synthesize") for task, _ in scripts}
    wanted |= {(*key, agent) for key in scripts for agent in JUDGES}
    assert given == dict.fromkeys(wanted, 1)


def test_answers_judge_the_criteria_of_their_role_and_point_at_steps_that_exist(
    requests: list[EvaluateScriptsRequest], scripts: dict[Key, ParsedCandidate], answers: list[dict[str, Any]]
) -> None:
    constraints = {request.task.id: set(request.task.constraints) for request in requests}
    for key, agent, answer in judged(answers):
        assert tuple(answer) == JUDGES[agent]
        for criterion, section in answer.items():
            assert list(section) == ["rationale", "findings", "verdict"]
            assert section["rationale"]
            assert section["verdict"] in {"pass", "fail"}
            assert section["findings"] or section["verdict"] == "pass"
            for finding in section["findings"]:
                assert finding["description"]
                assert all(1 <= step <= len(scripts[key].steps) for step in finding["steps"])
                assert ("missing_step" in finding) == (criterion == criteria.NO_MISSING_STEPS)
                if criterion == criteria.SATISFIES_CONSTRAINTS:
                    assert finding["constraint"] in constraints[key[0]]


def test_gold_answers_are_lists_of_steps(answers: list[dict[str, Any]]) -> None:
    for row in answers:
        if row["agent"] == "synthesize":
            lines = row["answer"].splitlines()
            assert [line.split(". ")[0] for line in lines] == [str(n + 1) for n in range(len(lines))]
            assert len(lines) >= 5


def test_answers_are_uneven_as_the_readme_says(
    labels: dict[Key, dict[str, Any]], answers: list[dict[str, Any]]
) -> None:
    wrong: Counter[str] = Counter()
    contradictory = 0
    for key, agent, answer in judged(answers):
        for criterion, section in answer.items():
            if section["findings"] and section["verdict"] == "pass":
                contradictory += 1
            elif section["verdict"] != labels[key]["labels"][criterion]:
                wrong["single" if agent == "script-judge" else "agents"] += 1
    assert contradictory == 1
    assert wrong["agents"] == 4
    assert wrong["single"] > 2 * wrong["agents"]
    raw = [row["answer"]["raw"] for row in answers if "raw" in row["answer"]]
    assert len(raw) == 2
    assert "I cannot help with that." in raw
