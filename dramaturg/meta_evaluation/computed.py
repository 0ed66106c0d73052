"""Dialogues with simulated programs, made by rule: right replies are computed, wrong ones derived from them.

Their number suffices to show that a sound judge of replies or pairs is within a shift of .1
(``conformance.certificate``); the dialogues of the labelled sets are too few for that.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dramaturg.judge import roles
from dramaturg.meta_evaluation.case import ENGLISH, Case
from dramaturg.meta_evaluation.cases import rating_case, reply_pair

DRAWS = 6
"""The dialogues with each program."""

Turns = tuple[str, str, str, str]
"""The first request, its reply, the second request, its reply."""
_WORDS = ("amber", "basket", "candle", "dragon", "ember", "forest", "garnet", "harbour", "island", "jacket")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _calculator(draw: random.Random) -> Turns:
    a, b, c, d = (draw.randrange(12, 99) for _ in range(4))
    return f"{a}*{b}", str(a * b), f"{c * d}/{c} + {b}", str(d + b)


def _terminal(draw: random.Random) -> Turns:
    home, first, second = draw.sample(_WORDS, 3)
    return (
        "pwd",
        f"/home/{home}",
        f"mkdir -p {first}/{second} && cd {first}/{second} && pwd",
        (f"/home/{home}/{first}/{second}"),
    )


def _interpreter(draw: random.Random) -> Turns:
    words, number = draw.sample(_WORDS, 3), draw.randrange(3, 9)
    return (
        f"print(len({words[0]!r}) * {number})",
        str(len(words[0]) * number),
        f"print(sorted({words}))",
        (str(sorted(words))),
    )


def _calendar(draw: random.Random) -> Turns:
    one, other, days = draw.randrange(7), draw.randrange(7), draw.randrange(8, 60)
    return (
        f"the day after a {_DAYS[one]}",
        _DAYS[(one + 1) % 7],
        f"the day {days} days after a {_DAYS[other]}",
        (_DAYS[(other + days) % 7]),
    )


def _store(draw: random.Random) -> Turns:
    key, value, other = draw.sample(_WORDS, 3)
    return f"SET {key} {value}", "OK", f"SET {key} {other}; GET {key}", f"OK\n{other}"


def _counter(draw: random.Random) -> Turns:
    first, second = draw.sample(_WORDS, 2), draw.sample(_WORDS, 4)
    return " ".join(first), str(len("".join(first))), " ".join(second), str(len("".join(second)))


_PROGRAMS: Mapping[str, tuple[str, Callable[[random.Random], Turns]]] = {
    "Calculator": ("a calculator that prints the result and nothing else. My first request is", _calculator),
    "Linux terminal": (
        "a Linux terminal that prints what it prints and nothing else. My first command is",
        _terminal,
    ),
    "Python interpreter": (
        "a Python interpreter that prints what it prints and nothing else. My first input is",
        _interpreter,
    ),
    "Calendar": ("a calendar that prints the weekday and nothing else. My first request is", _calendar),
    "Key-value store": (
        "a key-value store that prints each answer and nothing else. My first input is",
        _store,
    ),
    "Letter counter": (
        "a counter that prints the number of letters of the words and nothing else. They are",
        _counter,
    ),
}
"""The instruction and the turns of each program, by its name."""


def dialogues() -> Iterator[Mapping[str, Any]]:
    """The dialogues in the form of those of the labelled sets, always the same ones."""
    for name, (instruction, turns) in _PROGRAMS.items():
        made = [turns(random.Random(f"{name}/{number}")) for number in range(DRAWS)]  # noqa: S311 - no secret
        for number, (request, reply, further, right) in enumerate(made):
            yield {
                "id": f"computed/{name}/{number}",
                "language": ENGLISH,
                "task": name,
                "utterances": [f"Act as {instruction} {request}", reply, further],
                "better": right,
                "worse": _wrong(number, right, further, [one[3] for one in made]),
            }


def _wrong(number: int, right: str, request: str, replies: list[str]) -> str:
    """A reply with a fault, by turns: that to another request, words about a result, the request itself."""
    if number % 3 == 0:
        return next(one for one in replies[number + 1 :] + replies[:number] if one != right)
    if number % 3 == 1:
        return (
            "That is something that I can work out. Shall I do it now, or would you like to change the input?"
        )
    return f"You asked for this: {request}"


def computed_cases(judge: str) -> list[Case]:
    """The cases of a role. None but for judges of replies and of pairs."""
    made: list[Case] = []
    for number, data in enumerate(dialogues()):
        if judge == roles.RATING_JUDGE.name:
            made += [
                rating_case(data, name, data[name], fault=name == "worse") for name in ("better", "worse")
            ]
        elif judge == roles.PAIR_JUDGE.name:
            made.append(reply_pair(data, by_roles=number % 2 == 1))
    return made


def sha256_of(cases: Sequence[Case]) -> str:
    """The SHA-256 of the requests of cases, in lower-case hexadecimal."""
    digest = hashlib.sha256()
    for case in cases:
        digest.update(case.request.SerializeToString(deterministic=True))
    return digest.hexdigest()
