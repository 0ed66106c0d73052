"""``dramaturg prompts`` as a user runs it, with models that are scripted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dramaturg.prompt_bench.cases import BenchSet
from tests.support.command_line import dramaturg
from tests.support.openai_server import Body, OpenAIServer
from tests.support.readers import shown
from tests.support.scripted_model import approve

BETTER = {data["better"] for data in (json.loads(BenchSet()._content))["pairs"]}


def members(body: Body) -> dict[str, Any]:
    schema: dict[str, Any] = body["response_format"]["json_schema"]["schema"]["properties"]
    return schema


def votes(body: Body, vote: str) -> Any:
    if "vote" in members(body):
        return {"reason": "So it is.", "vote": vote}
    roles = shown(body).roles
    return {"votes": [{"role": n, "reason": "So.", "vote": vote} for n in range(1, len(roles) + 1)]}


def careless(body: Body) -> Any:
    """Finds nothing wrong, and prefers what it is shown first."""
    form = members(body)
    if "vote" in form or "votes" in form:
        return votes(body, "1")
    if "rating" in form:
        return {"reason": "Fine.", "rating": 9}
    if "turn" in form:
        return {"reason": "Fine.", "turn": 0}
    return approve(body)


def strict(body: Body) -> Any:
    """Fails every criterion, and prefers the better text in both orders."""
    form = members(body)
    if "vote" in form or "votes" in form:
        seen = shown(body)
        first, second = seen.text_1 in BETTER, seen.text_2 in BETTER
        return votes(body, "tie" if first == second else "1" if first else "2")
    answer = json.loads(approve(body))
    for criterion, part in answer.items():
        if "verdict" not in part:
            continue
        part["verdict"] = "fail"
        for item in [*part.get("constraints", []), *part.get("steps", [])]:
            item["verdict"] = "fail"
        if "findings" in part:
            asked = form[criterion]["properties"]["findings"]["items"]["properties"]
            fault = {"steps": [1], "problem": "Wrong.", "missing_step": "Another."}
            part["findings"] = [{name: fault[name] for name in asked}]
    return answer


async def bench(server: OpenAIServer, folder: Path, *options: str | Path) -> Any:
    environment = {
        "OPENAI_BASE_URL": server.base_url,
        "MODEL": "m",
        "DRAMATURG_GENERATION_LEDGER": str(folder / "ledger.sqlite3"),
    }
    return await dramaturg("prompts", "bench", *options, environment=environment)


def by_prompt(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"+".join(one["prompts"]): one for one in table["judges"]}


async def test_rates_of_every_judge_are_kept_by_prompt_version(tmp_path: Path) -> None:
    kept = tmp_path / "careless.json"
    async with OpenAIServer(careless) as server:
        done = await bench(server, tmp_path, "--json", "-o", kept)
        calls = sum(server.calls.values())
    assert done.code == 0, done.err
    table = done.json
    assert table == json.loads(kept.read_text(encoding="utf-8"))
    found = by_prompt(table)
    assert set(found) == {
        "critique",
        "critique_alone",
        "execute",
        "commonsense",
        "judge_script",
        "compare_texts",
        "compare_texts_by_roles",
        "compare_replies",
        "compare_replies_by_roles",
        "rate_reply",
        "find_challenging_turn",
    }
    for one in found.values():
        assert one["detected"][0] == 0 < one["detected"][1]
        assert one["false_alarms"][0] == 0
        assert one["abstained"][0] == 0
        assert one["models"] == ["m"]
        assert one["usage"]["prompt_tokens"] > 0
        assert all(len(digest) == 64 for digest in one["prompts"].values())
    assert found["compare_texts"]["orders"][0] == 0 < found["compare_texts"]["orders"][1]
    assert found["critique"]["orders"] == [0, 0]
    assert sum(one["usage"]["calls"] for one in found.values()) == calls
    assert sum(one["injections"][1] for one in found.values()) > 0
    assert sum(one["other_languages"][1] for one in found.values()) > 0
    assert table["set"] == BenchSet().sha256
    assert table["errors"] == []


async def test_two_tables_stand_side_by_side(tmp_path: Path) -> None:
    kept, other = tmp_path / "careless.json", tmp_path / "strict.json"
    judges = ("--judge", "commonsense", "--judge", "pair-judge")
    prompts = tmp_path / "prompts" / "commonsense"
    prompts.mkdir(parents=True)
    (prompts / "commonsense.md").write_text("# user\n{{goal}}{{candidate}}{{criteria}}{{answer}}")
    async with OpenAIServer(careless) as server:
        first = await bench(server, tmp_path, *judges, "-o", kept)
    async with OpenAIServer(strict) as server:
        second = await bench(
            server, tmp_path / "prompts", *judges, "--prompts", prompts.parent, "--compare", kept, "-o", other
        )
    assert first.code == second.code == 0, first.err + second.err
    before, after = (by_prompt(json.loads(file.read_text(encoding="utf-8"))) for file in (kept, other))
    assert after["commonsense"]["detected"][0] == after["commonsense"]["detected"][1] == 10
    assert after["commonsense"]["false_alarms"] == [7, 7]
    assert after["compare_texts"]["orders"] == [6, 6]
    assert after["compare_texts"]["detected"] == [5, 5]
    assert after["commonsense"]["prompts"] != before["commonsense"]["prompts"]
    assert after["compare_texts"]["prompts"] == before["compare_texts"]["prompts"]
    assert "0/10->10/10" in second.out
    again = await dramaturg("prompts", "compare", kept, other)
    assert again.code == 0, again.err
    assert "0/10->10/10" in again.out


async def test_the_rules_of_the_votes_can_be_measured(tmp_path: Path) -> None:
    async with OpenAIServer(strict) as server:
        options = ("--judge", "pair-judge", "--forced-choice", "--no-bias-caution", "--json")
        done = await bench(server, tmp_path, *options)
        prompts = ["".join(message["content"] for message in body["messages"]) for body in server.bodies]
    assert done.code == 0, done.err
    assert done.json["rules"] == {"forced_choice": True, "bias_caution_omitted": True}
    assert all("There is no tie" in prompt and "nor their length" not in prompt for prompt in prompts)
    # The scripted model answers "tie" to texts that it does not know.
    assert by_prompt(done.json)["compare_replies"]["abstained"] == [4, 4]


async def test_a_judge_that_does_not_answer_is_counted_and_named(tmp_path: Path) -> None:
    done = await dramaturg(
        "prompts", "bench", "--judge", "rating-judge=127.0.0.1:1", "--timeout", "2", "--json"
    )
    assert done.code == 1
    [one] = done.json["judges"]
    assert one["abstained"] == [9, 9]
    assert one["abstentions"] == {"UNAVAILABLE": 9}
    assert len(done.json["errors"]) == 9


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--judge", "author"), "the roles are critic, execute"),
        (("--judge", "critic="), "is ROLE or ROLE=HOST:PORT"),
        (("--prompts", ".", "--target", "127.0.0.1:1"), "--prompts goes with services that are started here"),
        (("--compare", "pyproject.toml"), "is no table of prompts bench"),
    ],
)
async def test_what_cannot_be_done_is_refused(options: tuple[str, ...], problem: str) -> None:
    done = await dramaturg("prompts", "bench", *options)
    assert (done.code, problem in done.err) == (2, True), done.err
