"""The released format of SimulBench: test scripts and tasks, as JSON Lines.

A script has "id", "source_id" (its task), "act", "task_description", "type", "source_file_name" (its
dialogue), "turn_num" and "dialogue_history"; a task "id", "act", "task_description", "request_type" and
"type". The file of overrides maps a task to its own "request_type" and "strategy_type".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueScript,
    EvaluateDialoguesRequest,
    SimulateDialogueRequest,
)
from dramaturg.kinds.dialogues import KIND_NAMES, SUBSET_NAMES
from dramaturg.service.validation import violations

_KINDS = {name: kind for kind, name in KIND_NAMES.items()}
_SPEAKERS = {"user": dialogue_pb2.SPEAKER_USER, "assistant": dialogue_pb2.SPEAKER_SIMULATOR}
_LONE_LATER_TURN = 4
_STRATEGIES = frozenset({"request_type", "strategy_type"})


class Skipped(NamedTuple):
    """An invalid row."""

    line: int
    """The number of its line, from 1. 0: it is about no line."""
    reason: str
    """The reason."""


@dataclass
class Scripts:
    """The result of a conversion of scripts."""

    requests: list[EvaluateDialoguesRequest] = field(default_factory=list)
    """One for each script, in order; tagged "subset" and "kind"."""
    skipped: list[Skipped] = field(default_factory=list)
    """The invalid rows."""


@dataclass
class Tasks:
    """The result of a conversion of tasks."""

    requests: list[SimulateDialogueRequest] = field(default_factory=list)
    """One for each task, in order; tagged "kind"."""
    skipped: list[Skipped] = field(default_factory=list)
    """The invalid rows and overrides."""


def read_scripts(rows: Sequence[tuple[int, Any]]) -> Scripts:
    """Makes a request of each script.

    The file does not say which kind a script is. One whose "turn_num" is 0 is the last turn of a dialogue
    without a challenging one. Of the others the first of each dialogue is the first challenging turn, and the
    rest come after it. A lone script of the fourth turn comes after one too: the paper left out scripts that
    every model aced, and the counts of its section 4.2.2 come out only if the turn before was one of them.
    """
    scripts = Scripts()
    good = []
    for line, row in rows:
        if problem := next(_script_problems(row), None):
            scripts.skipped.append(Skipped(line, problem))
        else:
            good.append((line, row))
    turns = Counter(_dialogue(row) for _, row in good if row["turn_num"])
    seen: set[tuple[str, str]] = set()
    for line, row in good:
        subset = dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY
        if row["turn_num"]:
            first = _dialogue(row) not in seen and not _is_orphan(row, turns)
            seen.add(_dialogue(row))
            subset = (
                dialogues_pb2.SCRIPT_SUBSET_FIRST_CHALLENGE
                if first
                else dialogues_pb2.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE
            )
        request = EvaluateDialoguesRequest(
            script=_script(row, subset), tags={"subset": SUBSET_NAMES[subset], "kind": row["type"]}
        )
        if broken := violations(request):
            scripts.skipped.append(Skipped(line, f"{broken[0].field}: {broken[0].description}"))
        else:
            scripts.requests.append(request)
    return scripts


def read_tasks(rows: Sequence[tuple[int, Any]], overrides: Mapping[str, Any]) -> Tasks:
    """Makes a request for a dialogue of each task.

    Args:
        rows: The rows of the file of tasks.
        overrides: Members to set by a task's id, or by what follows "#" in it where one task has that:
            released overrides carry numbers of an earlier list.
    """
    tasks = Tasks()
    matched = _match(overrides, [row["id"] for _, row in rows if _is_task(row)])
    for key in overrides:
        if key not in matched.values():
            tasks.skipped.append(Skipped(0, f"the override of {key!r} is of no task here"))
    for line, row in rows:
        if not _is_task(row):
            tasks.skipped.append(
                Skipped(line, "must have id, act and task_description, and stateless or stateful as type")
            )
            continue
        own = overrides.get(matched.get(row["id"], ""), {})
        problem = _override_problem(own)
        if problem:
            tasks.skipped.append(Skipped(line, problem))
            continue
        task = _task(row["id"], row)
        task.request_type = own.get("request_type", row.get("request_type", ""))
        task.strategy_type = own.get("strategy_type", "")
        request = SimulateDialogueRequest(task=task, tags={"kind": row["type"]})
        if broken := violations(request):
            tasks.skipped.append(Skipped(line, f"{broken[0].field}: {broken[0].description}"))
        else:
            tasks.requests.append(request)
    return tasks


def _match(overrides: Mapping[str, Any], ids: Sequence[str]) -> Mapping[str, str]:
    """The key of the override for each task that has one."""
    exact = {key: key for key in overrides if key in ids}
    names = Counter(name.partition("#")[2] for name in ids)
    by_name = {key.partition("#")[2]: key for key in overrides if key not in exact}
    return {
        **{
            name: by_name[bare]
            for name in ids
            if (bare := name.partition("#")[2]) in by_name and names[bare] == 1
        },
        **exact,
    }


def _override_problem(own: Any) -> str:
    fits = isinstance(own, dict) and own.keys() <= _STRATEGIES
    if fits and all(isinstance(one, str) for one in own.values()):
        return ""
    return f"its override must be an object of strings named {' and '.join(sorted(_STRATEGIES))}"


def _is_orphan(row: Mapping[str, Any], turns: Counter[tuple[str, str]]) -> bool:
    """Whether a script is the only one of its dialogue, and the last of four turns."""
    return turns[_dialogue(row)] == 1 and row["turn_num"] == _LONE_LATER_TURN


def _dialogue(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["source_id"], row["source_file_name"]


def _script(row: Mapping[str, Any], subset: dialogues_pb2.ScriptSubset.ValueType) -> DialogueScript:
    history = row["dialogue_history"]
    return DialogueScript(
        id=str(row["id"]),
        task=_task(row["source_id"], row),
        utterances=[Utterance(speaker=_SPEAKERS[one["role"]], text=one["content"]) for one in history],
        subset=subset,
        turn=(len(history) + 1) // 2,
    )


def _task(name: str, row: Mapping[str, Any]) -> SimulationTask:
    return SimulationTask(
        id=name, name=row["act"].strip(), description=row["task_description"], kind=_KINDS[row["type"]]
    )


def _is_task(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in ("id", "act", "task_description"))
        and isinstance(row.get("request_type", ""), str)
        and row.get("type") in _KINDS
    )


def _script_problems(row: Any) -> Iterator[str]:
    if not isinstance(row, dict):
        yield f"is not an object but {type(row).__name__}"
        return
    for name in ("source_id", "source_file_name", "act", "task_description"):
        if not isinstance(row.get(name), str):
            yield f"{name}: must be a string"
    if row.get("type") not in _KINDS:
        yield f"type: must be one of {', '.join(_KINDS)}"
    if isinstance(row.get("turn_num"), bool) or not isinstance(row.get("turn_num"), int):
        yield "turn_num: must be a number"
    if isinstance(row.get("id"), bool) or not isinstance(row.get("id"), int | str):
        yield "id: must be a number or a string"
    history = row.get("dialogue_history")
    if not isinstance(history, list) or not history:
        yield "dialogue_history: must be a list that is not empty"
        return
    for index, one in enumerate(history):
        role = ("user", "assistant")[index % 2]
        if not isinstance(one, dict) or one.get("role") != role or not isinstance(one.get("content"), str):
            yield f"dialogue_history[{index}]: must have the role {role!r} and a content"
    if len(history) % 2 == 0:
        yield "dialogue_history: must end with the user's"
