"""``dramaturg judges compare`` at a running gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.dialogues_pb2 import ModelPair, SimulateDialogueRequest
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnResponse
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyResponse, Rating
from dramaturg.judge.verdicts import abstained, failed, passed
from dramaturg.testing import serve, serve_gateway
from services.alignment.app import App as AlignmentApp
from tests.gateway.evaluations.test_dialogues import asked
from tests.gateway.evaluations.test_shadows_judgements import (
    prefer_first,
    prefer_second,
    rate_by_length,
    reply_by_name,
)
from tests.gateway.evaluations.test_simulations import TASK, Cast
from tests.support.command_line import dramaturg
from tests.support.evaluations import CALL, contract
from tests.support.gateway import Fake, criteria_of, gateway_target, scripts_request
from tests.support.pairs import request as pair_request

pytestmark = pytest.mark.usefixtures("runs_enabled")


async def alternating(request: Any) -> Assessment:
    """FAIL for the first candidate alone."""
    verdict = failed if request.candidate.id == "c0" else passed
    return Assessment(verdicts=[verdict(criterion, rationale="So.") for criterion in criteria_of("critic")])


async def opposite(request: Any) -> Assessment:
    """FAIL for all but the first candidate."""
    verdict = passed if request.candidate.id == "c0" else failed
    return Assessment(verdicts=[verdict(criterion, rationale="So.") for criterion in criteria_of("critic")])


async def test_two_judges_with_equal_pass_rates_that_never_agree(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(MessageToDict(scripts_request(2))) + "\n", encoding="utf-8")
    async with (
        AlignmentApp().open() as contracts,
        serve(*contracts) as alignment,
        gateway_target(
            Fake("synthesize"),
            Fake("critic", alternating, name="a", default=True),
            Fake("critic", opposite, name="b"),
            Fake("alignment", target=alignment.target),
        ) as target,
    ):
        at = ("--target", target, "--out", str(tmp_path / "out"))
        shown = await dramaturg("judges", "compare", "critic=a", "b", str(rows), *at)
        as_json = await dramaturg(
            *("judges", "compare", "critic=a", "critic=b", str(rows), "--target", target),
            *("--out", str(tmp_path / "json"), "--json"),
        )
        other = ("--target", target, "--out", str(tmp_path / "unknown"))
        unknown = await dramaturg("judges", "compare", "critic=a", "gone", str(rows), *other)
        page = tmp_path / "page.html"
        report = await dramaturg("report", str(tmp_path / "out"), "--out", str(page), "--target", target)
    assert shown.code == 0, shown.err
    for words in (
        "Equal pass rates are not agreement",
        "6 of 6 verdicts that differ",
        "no_missing_steps",
        "0.0 %",
    ):
        assert words in shown.out
    (found,) = as_json.json["judge_comparisons"]
    whole = found["figures"][-1]
    assert (whole["judged_count"], whole["agreement"]["value"]) == (6, 0)
    assert whole["first_pass_rate"]["value"] == whole["second_pass_rate"]["value"] == 0.5
    assert (whole["cohen_kappa"]["value"], found["flip_count"]) == (-1, 6)
    assert found["first"]["assessment_count"] == found["second"]["assessment_count"] == 2
    assert (unknown.code, "gone" in unknown.err) == (2, True)
    assert report.code == 0, report.err
    text = page.read_text(encoding="utf-8")
    assert "6 of 6 verdicts that differ" in text
    assert 'href="#sample=0"' in text


@asynccontextmanager
async def two_judges(role: str, method: str, first: Any, second: Any) -> AsyncIterator[str]:
    """The address of a gateway with the judges "one" and "two" of a role, and the other roles."""
    async with AsyncExitStack() as stack:
        entries: list[dict[str, Any]] = []

        async def add(role: str, name: str, *contracts: Any) -> None:
            served = await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))
            entries.append({"role": role, "name": name, "target": served.target, "default": name != "two"})

        for name, answer in (("one", first), ("two", second)):
            await add(role, name, contract(role, {method: answer}))
        others = {"author": {"Reply": reply_by_name}} if role == "rating-judge" else Cast().roles()
        await add("author", "fake", contract("author", others["author"]))
        await add("alignment", "built-in", *await stack.enter_async_context(AlignmentApp().open()))
        yield (await stack.enter_async_context(serve_gateway(judges=entries, runs={}))).target


async def rate_six(_: Any) -> RateReplyResponse:
    return RateReplyResponse(rating=Rating(value=6, provenance=CALL))


async def first_turn(_: Any) -> FindChallengingTurnResponse:
    return FindChallengingTurnResponse(turn=1, provenance=CALL)


async def second_turn(_: Any) -> FindChallengingTurnResponse:
    return FindChallengingTurnResponse(turn=2, provenance=CALL)


def _pair_row() -> Any:
    request = pair_request(judging_omitted=True)
    request.roles.coarse_count, request.roles.fine_count = 0, 0
    return request


async def test_judges_without_a_verdict_on_the_same_criterion_are_an_error(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(MessageToDict(scripts_request(2))) + "\n", encoding="utf-8")

    def only(judged: str) -> Any:
        async def judge(request: Any) -> Assessment:
            return Assessment(
                verdicts=[
                    passed(one) if one == judged else abstained(one, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED)
                    for one in criteria_of("critic")
                ]
            )

        return judge

    first, second, *_ = criteria_of("critic")
    async with (
        AlignmentApp().open() as contracts,
        serve(*contracts) as alignment,
        gateway_target(
            Fake("synthesize"),
            Fake("critic", only(first), name="a", default=True),
            Fake("critic", only(second), name="b"),
            Fake("alignment", target=alignment.target),
        ) as target,
    ):
        at = ("--target", target, "--out", str(tmp_path / "out"))
        compared = await dramaturg("judges", "compare", "critic=a", "b", str(rows), *at)
    assert compared.code == 1, compared.out
    assert "nothing is compared: 'a' and 'b' have no verdict on the same criterion" in " ".join(
        compared.err.split()
    )


@pytest.mark.parametrize(
    ("role", "method", "answers", "row", "flips", "items"),
    [
        ("pair-judge", "ComparePair", (prefer_first, prefer_second), _pair_row(), [("FIRST", "SECOND")], 1),
        (
            "rating-judge",
            "RateReply",
            (rate_by_length, rate_six),
            asked(models=["a", "bb"], pairs=[ModelPair(first_model="a", second_model="bb")]),
            [("5", "6")],
            2,
        ),
        (
            "challenge-judge",
            "FindChallengingTurn",
            (first_turn, second_turn),
            SimulateDialogueRequest(task=TASK),
            [("1", "2")],
            1,
        ),
    ],
)
async def test_judges_of_every_kind_are_compared_on_their_own_rows(
    role: str, method: str, answers: Any, row: Any, flips: Any, items: int, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(MessageToDict(row)) + "\n", encoding="utf-8")
    async with two_judges(role, method, *answers) as target:
        at = ("--target", target, "--out", str(tmp_path / "out"))
        shown = await dramaturg("judges", "compare", f"{role}=one", "two", str(rows), *at)
        into = ("--target", target, "--out", str(tmp_path / "json"), "--json")
        as_json = await dramaturg("judges", "compare", f"{role}=two", "one", str(rows), *into)
    assert shown.code == 0, shown.err
    assert "Equal pass rates are not agreement" in shown.out
    (found,) = as_json.json["judge_comparisons"]
    assert (found["first_judge"], found["second_judge"], found["item_count"]) == ("two", "one", items)
    assert [(one["second"], one["first"]) for one in found["flips"]] == flips
    whole = found["figures"][-1]
    assert whole["agreement"]["value"] == 1 - len(flips) / items
    for side in ("first", "second"):
        assert found[side]["mean_latency_seconds"] > 0
        assert found[side]["usage"]["provider_call_count"] == items


async def test_wrong_usage_is_told_before_a_gateway_is_asked(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("", encoding="utf-8")
    for names, words in (
        (("a", "b"), "ROLE=NAME NAME"),
        (("critic=a", "a"), "named twice"),
        (("critic=a", "execute=b"), "ROLE=NAME NAME"),
    ):
        refused = await dramaturg("judges", "compare", *names, str(rows))
        assert (refused.code, words in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("command", "row"),
    [
        (("eval", "--kind", "pairs"), _pair_row()),
        (("eval", "--kind", "dialogues"), asked(models=["a"])),
        (("research", "simulate"), SimulateDialogueRequest(task=TASK)),
        (("eval", "--kind", "scripts"), scripts_request(1)),
    ],
)
async def test_commands_set_how_long_results_wait_for_shadows(
    command: tuple[str, ...], row: Any, tmp_path: Path
) -> None:
    rows, made = tmp_path / "rows.jsonl", tmp_path / "made.jsonl"
    rows.write_text(json.dumps(MessageToDict(row)) + "\n", encoding="utf-8")
    for given, expected in ((("--set", "shadow_wait=2.5"), "2.500s"), ((), None)):
        finished = await dramaturg(*command, str(rows), "--rows", str(made), *given)
        assert finished.code == 0, finished.err
        (written, *_) = made.read_text(encoding="utf-8").splitlines()
        assert json.loads(written).get("shadow_wait", json.loads(written).get("shadowWait")) == expected
