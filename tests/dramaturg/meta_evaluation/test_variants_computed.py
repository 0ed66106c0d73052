"""Dialogues whose right reply is computed."""

from __future__ import annotations

import datetime

from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest
from dramaturg.judge.roles import EXECUTE, PAIR_JUDGE, RATING_JUDGE
from dramaturg.meta_evaluation.material import PREFERENCE, RATING
from dramaturg.meta_evaluation.variants import DRAWS, computed_cases, dialogues, sha256_of

FOUND = list(dialogues())


def test_right_replies_are_right() -> None:
    for one in FOUND:
        request, right = one["utterances"][2], one["better"]
        match one["task"]:
            case "Calculator":
                assert str(round(eval(request))) == right
            case "Python interpreter":
                assert str(eval(request.removeprefix("print(").removesuffix(")"))) == right
            case "Calendar":
                _, _, days, _, _, _, name = request.split()
                monday = datetime.date(2024, 1, 1)
                start = next(day for day in range(7) if f"{monday + datetime.timedelta(day):%A}" == name)
                assert f"{monday + datetime.timedelta(start + int(days)):%A}" == right
            case "Letter counter":
                assert sum(letter.isalpha() for letter in request) == int(right)
            case "Key-value store":
                assert right == f"OK\n{request.split()[2].rstrip(';')}"
            case "Linux terminal":
                assert right == f"{one['utterances'][1]}/{request.split()[2]}"


def test_each_dialogue_is_new_and_has_a_wrong_reply() -> None:
    assert len({str(one["utterances"]) for one in FOUND}) == len({one["id"] for one in FOUND}) == 6 * DRAWS
    assert all(one["worse"] != one["better"] for one in FOUND)
    assert list(dialogues()) == FOUND


def test_judges_of_replies_and_pairs_have_cases_of_them() -> None:
    ratings, pairs = computed_cases(RATING_JUDGE.name), computed_cases(PAIR_JUDGE.name)
    assert [one.faults[RATING] for one in ratings] == [False, True] * 36
    assert [one.faults[PREFERENCE] for one in pairs] == [True] * 36
    requests = [one.request for one in pairs if isinstance(one.request, ComparePairRequest)]
    assert sum(len(one.roles) > 0 for one in requests) == 18
    assert not computed_cases(EXECUTE.name)
    assert sha256_of(ratings) == sha256_of(computed_cases(RATING_JUDGE.name)) != sha256_of(pairs)
