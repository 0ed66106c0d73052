"""Every parser of text that a model or a judge wrote, with one signature."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from dramaturg.api.generation.v1.generation_service_pb2 import TokenLogprob
from dramaturg.graphs.parsing.builder import TooLargeError
from dramaturg.graphs.parsing.formats import parse
from dramaturg.judge import answers, criteria
from dramaturg.judge.answers import StepsForm, UnclearAnswerError, VerdictsForm
from dramaturg.judge.fence import visible
from dramaturg.judge.quotes import names_phrase
from dramaturg.judge.reasoning import blanked, separate
from dramaturg.judge.short_answers import option_of, options, scale
from dramaturg.judge.steps import split_steps
from dramaturg_research.formats.coscript import strip_number
from services.generation.answers.forms import json_form
from services.generation.answers.reader import parse_answer
from services.generation.authoring.decisions import read_choice
from services.generation.authoring.dialogues import UserTurnForm
from services.generation.edges.prediction import read_yes_no
from services.judging.challenges.judge import turn_form
from services.judging.pairs.form import BatchForm, SingleForm, locate, written_ballots
from services.judging.ratings.judge import FORM as RATING
from services.judging.rubrics.judge import rubric_form
from services.roles.generator import ORIGINS, RolesForm

TURNS = 5
ROLES = 3
STEPS = 4
OPTION_1, OPTION_2 = "call the library", "search online for the opening hours"
VERDICT_CRITERION = criteria.NO_DUPLICATE_STEPS
RUBRIC = rubric_form(("polite", "clear"), (None, (1, 5)), ((), ()))
VERDICT = VerdictsForm.of([VERDICT_CRITERION], step_count=STEPS, constraints=())


def read_form(form: Any, text: str, *, is_last: bool = True) -> Any:
    """The value of a form in a text, as a judge reads it; None: an abstention."""
    compiled = json_form(form.name, answers.schema(form), answers.accepted_schema(form))
    parsed = parse_answer(text, compiled, is_last=is_last)
    if parsed.json is None:
        return None
    try:
        return form.parse(json.loads(parsed.json))
    except UnclearAnswerError:
        return None


def read_verdict(text: str) -> str | None:
    from dramaturg.api.common.v1 import verdict_pb2

    verdicts = read_form(VERDICT, text)
    if not verdicts:
        return None
    names = {
        verdict_pb2.OUTCOME_PASS: "pass",
        verdict_pb2.OUTCOME_FAIL: "fail",
    }
    return names.get(verdicts[0].outcome)


def read_rubric(text: str) -> dict[str, str | int | None] | None:
    from dramaturg.api.common.v1 import verdict_pb2

    verdicts = read_form(RUBRIC, text)
    if verdicts is None:
        return None
    names = {verdict_pb2.OUTCOME_PASS: "pass", verdict_pb2.OUTCOME_FAIL: "fail"}
    read = {
        one.criterion: int(one.score) if one.HasField("score") else names.get(one.outcome) for one in verdicts
    }
    return read if any(read.values()) else None


def read_user_turn(text: str) -> list[str] | None:
    read = read_form(UserTurnForm(""), text)
    return None if read is None else [*read]


def read_roles(text: str) -> list[list[str]] | None:
    read = read_form(RolesForm({"coarse": 2, "fine": 1}), text)
    kinds = {origin: kind for kind, origin in ORIGINS.items()}
    return (
        [[kinds[role.origin], role.type, role.description] for role in read.roles] or None if read else None
    )


def read_script(text: str) -> list[str] | None:
    read = read_form(StepsForm(), text)
    return None if read is None else [*read]


def read_rating(text: str) -> int | None:
    read = read_form(RATING, text)
    return None if read is None else int(read.number)


def read_turn(text: str) -> int | None:
    read = read_form(turn_form(TURNS), text)
    return None if read is None else int(read.number)


def read_vote(text: str) -> str | None:
    read = read_form(SingleForm(), text)
    return getattr(read[0], "choice", None) if read else None


def read_votes(text: str) -> Sequence[str | None]:
    read = read_form(BatchForm(ROLES), text)
    return [getattr(one, "choice", None) for one in read] if read else [None] * ROLES


def read_decision(text: str) -> int | None:
    return read_choice(text, OPTION_1, OPTION_2)


def read_graph(text: str) -> Any:
    try:
        graph = parse(text).graph
    except TooLargeError:
        return None
    if graph is None:
        return None
    return sorted(graph.edges), {key: event.text for key, event in graph.events.items()}


def place(text: str) -> object:
    tokens = [TokenLogprob(token=part) for part in (text[: len(text) // 2], text[len(text) // 2 :], "<end>")]
    return locate(tokens, text + "b"), locate(tokens, text)


PARSERS: dict[str, Callable[[str], object]] = {
    "reasoning": lambda text: (separate(text), blanked(text)),
    "verdict": read_verdict,
    "verdicts": lambda text: read_form(
        VerdictsForm.of(criteria.ABSEVAL, step_count=STEPS, constraints=("a", "b")), text
    ),
    "rating": read_rating,
    "rubric": lambda text: read_form(RUBRIC, text),
    "turn": read_turn,
    "vote": read_vote,
    "votes": read_votes,
    "script": read_script,
    "roles": read_roles,
    "user turn": read_user_turn,
    "decision": read_decision,
    "yes or no": read_yes_no,
    "labelled number": lambda text: scale(1, 10).value_of(text, "rating"),
    "labelled option": lambda text: options(("1", "2", "tie")).value_of(text, "vote"),
    "number": lambda text: scale(1, 10).value_of(text),
    "option": lambda text: option_of(text, ["pass", "fail"]),
    "graph": read_graph,
    "steps": split_steps,
    "ballots": lambda text: list(written_ballots(text)),
    "tokens": place,
    "number of a step": strip_number,
    "phrases": lambda text: names_phrase(text, text[: len(text) // 2] + "x"),
    "fence": visible,
}
