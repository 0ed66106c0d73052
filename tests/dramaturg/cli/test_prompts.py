"""``dramaturg research prompts`` as a user runs it, with models that are scripted."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from dramaturg.formats.rubric import ready_rubrics
from dramaturg.meta_evaluation.cases import HELD_OUT_FILE, BenchSet
from tests.support.command_line import dramaturg
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.readers import prompt_of, shown
from tests.support.scripted_model import approve

DATA: dict[str, Any] = json.loads(BenchSet()._content)
BETTER = {data["better"] for data in DATA["pairs"]}
ROLES = {
    kind: [{"type": f"{kind} {n}", "description": f"Number {n}."} for n in range(2)]
    for kind in ("coarse", "fine")
}


def members(body: Body) -> dict[str, Any]:
    """The members of the form of the answer; none where it is a text."""
    form = body.get("response_format", {}).get("json_schema")
    schema: dict[str, Any] = form["schema"]["properties"] if form else {}
    return schema


def votes(body: Body, vote: str) -> Any:
    if "vote" in members(body):
        return {"reason": "So it is.", "vote": vote}
    roles = shown(body).roles
    return {f"role_{n}": {"reason": "So.", "vote": vote} for n in range(1, len(roles) + 1)}


def careless(body: Body) -> Any:
    """Finds nothing wrong, prefers the first thing shown, and writes nothing of use."""
    form, prompt = members(body), prompt_of(body)
    if not form:
        return "no" if "Must event A" in prompt else "Option 1"
    if "vote" in form or "role_1" in form:
        return votes(body, "1")
    if "rating" in form:
        return {"reason": "Fine.", "rating": 9}
    if "turn" in form:
        return {"reason": "Fine.", "turn": 0}
    if "coarse" in form:
        return {"coarse": ROLES["coarse"][:1], "fine": []}
    if "edges" in form:
        return {"edges": []} | ({"events": [{"number": 1, "event": "begin"}]} if "events" in form else {})
    if "utterance" in form:
        replies = (data["utterances"][1] for data in DATA["dialogues"] if data["utterances"][0] in prompt)
        return {"strategy": "other", "utterance": next(replies)}
    if "considerations" in form:
        return {"considerations": "", "steps": ["Begin."]}
    if scales := {"warmth", "tone"} & set(form):
        scored = {"reason": "Fine.", "verdict": "scored", "score": 5}
        return {name: {"reason": "Fine.", "verdict": "pass"} for name in form} | dict.fromkeys(scales, scored)
    return approve(body)


def strict(body: Body) -> Any:
    """Fails every criterion, prefers the better text in both orders, and writes everything needed."""
    form, prompt = members(body), prompt_of(body)
    if not form:
        return "yes" if "Must event A" in prompt else write(prompt)
    if "vote" in form or "role_1" in form:
        seen = shown(body)
        first, second = seen.text_1 in BETTER, seen.text_2 in BETTER
        return votes(body, "tie" if first == second else "1" if first else "2")
    if "coarse" in form:
        return ROLES
    if "edges" in form:
        graphs = [*DATA["event_graphs"], DATA["pairwise_graph"]]
        graph = next(data for data in graphs if data["scenario"] in prompt)
        events = ["decided to begin", *graph["events"].values(), graph["scenario"]]
        edges = [{"before": a, "after": b} for a, b in permutations(range(1, len(graph["events"]) + 1), 2)]
        listed = [{"number": n, "event": event} for n, event in enumerate(events, start=1)]
        return {"edges": edges} | ({"events": listed} if "events" in form else {})
    if "utterance" in form:
        return {"strategy": "next-step", "utterance": "exit"}
    if "warmth" in form:
        scored = {"reason": "Bad.", "verdict": "scored", "score": 1}
        return {name: {"reason": "Bad.", "verdict": "fail"} for name in form} | {"warmth": scored}
    if "steps" in form:
        return {"considerations": "", "steps": write(prompt).splitlines()}
    return failing(body, form)


def write(prompt: str) -> str:
    """The flawless script for the goal of a prompt; for a decision, an option by its words."""
    for data in DATA["scripts"]:
        if data["goal"] in prompt:
            return "\n".join(f"{n}. {step}" for n, step in enumerate(data["steps"], start=1))
    return "call the library"


def failing(body: Body, form: dict[str, Any]) -> Any:
    """The verdicts of a judge of scripts, all of them "fail"."""
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
    return await dramaturg("research", "prompts", "bench", *options, environment=environment)


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
        "judge_by_rubric",
        "synthesize",
        "generate_roles",
        "predict_edges",
        "precedes",
        "write_script",
        "write_script_graph",
        "next_user_turn",
        "choose_again+choose_option+decision_story",
    }
    decisions = found.pop("choose_again+choose_option+decision_story")
    # "Option 1" is right in two of four clear decisions, each in one order, and never for "either".
    assert (decisions["detected"], decisions["false_alarms"]) == ([4, 8], [2, 2])
    assert decisions["orders"] == [0, 5]
    # The user repeats the simulator, but for the instruction at the end of one reply.
    repeated = found.pop("next_user_turn")
    assert (repeated["detected"], repeated["false_alarms"]) == ([1, 5], [0, 1])
    for one in found.values():
        assert one["detected"][0] == 0 < one["detected"][1], one
        assert one["false_alarms"][0] == 0, one
        assert one["abstained"][0] == 0
        assert one["models"] == ["m"]
        assert one["usage"]["prompt_tokens"] > 0
        assert all(len(digest) == 64 for digest in one["prompts"].values())
    assert found["compare_texts"]["orders"][0] == 0 < found["compare_texts"]["orders"][1]
    assert found["critique"]["orders"] == [0, 0]
    found |= {"choose_option": decisions, "next_user_turn": repeated}
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
    again = await dramaturg("research", "prompts", "compare", kept, other)
    assert again.code == 0, again.err
    assert "0/10->10/10" in again.out


async def test_what_authors_write_is_held_against_its_labels(tmp_path: Path) -> None:
    judges = [
        part
        for role in ("synthesize", "roles", "edges", "author", "rubric-judge")
        for part in ("--judge", role)
    ]
    async with OpenAIServer(strict) as server:
        done = await bench(server, tmp_path, *judges, "--json")
    assert done.code == 0, done.err
    found = by_prompt(done.json)
    for name in ("write_script_graph", "next_user_turn"):
        assert found[name]["detected"][0] == found[name]["detected"][1] > 0, found[name]
    for name in ("synthesize", "write_script", "generate_roles"):
        assert found[name]["detected"][0] == found[name]["detected"][1] > 0, found[name]
        assert (
            found[name]["false_alarms"][0] == 0 < found[name]["false_alarms"][1] or name == "generate_roles"
        )
    for name in ("predict_edges", "precedes", "judge_by_rubric"):
        # All pairs have an edge, and all criteria fail.
        assert found[name]["detected"][0] == found[name]["detected"][1] > 0, found[name]
        assert found[name]["false_alarms"][0] == found[name]["false_alarms"][1] > 0, found[name]
    # "call the library" is the first option in the order of the request, however it is shown.
    decisions = found["choose_again+choose_option+decision_story"]
    assert decisions["detected"] == [4, 8]
    # The German decision has no such option.
    assert (decisions["orders"], decisions["abstained"]) == ([4, 4], [2, 10])


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
        "research", "prompts", "bench", "--judge", "rating-judge=127.0.0.1:1", "--timeout", "2", "--json"
    )
    assert done.code == 1
    [one] = done.json["judges"]
    assert one["abstained"] == [9, 9]
    assert one["abstentions"] == {"UNAVAILABLE": 9}
    assert len(done.json["errors"]) == 9


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--judge", "graph"), "the roles are critic, execute"),
        (("--judge", "critic="), "is ROLE or ROLE=HOST:PORT"),
        (("--prompts", ".", "--target", "127.0.0.1:1"), "--prompts goes with services that are started here"),
        (("--compare", "pyproject.toml"), "is no table of prompts bench"),
        (("--set", "ready-rubrics", "--judge", "critic"), "the set ready-rubrics has no cases of critic"),
    ],
)
async def test_what_cannot_be_done_is_refused(options: tuple[str, ...], problem: str) -> None:
    done = await dramaturg("research", "prompts", "bench", *options)
    assert (done.code, problem in done.err) == (2, True), done.err


async def test_the_held_out_set_is_another_one(tmp_path: Path) -> None:
    async with OpenAIServer(careless) as server:
        done = await bench(server, tmp_path, "--set", "held-out", "--judge", "challenge-judge", "--json")
    assert done.code == 0, done.err
    assert done.json["set"] == BenchSet(HELD_OUT_FILE).sha256


async def test_each_ready_rubric_has_a_row_of_its_own(tmp_path: Path) -> None:
    kept = tmp_path / "table.json"
    async with OpenAIServer(careless) as server:
        done = await bench(server, tmp_path, "--set", "ready-rubrics", "--json", "-o", kept)
        again = await bench(server, tmp_path, "--set", "ready-rubrics", "--compare", kept)
    assert (done.code, again.code) == (0, 0), done.err + again.err
    found = {one["rubric"]: one for one in done.json["judges"]}
    assert list(found) == list(ready_rubrics())
    for name, one in found.items():
        assert one["detected"][0] == one["false_alarms"][0] == one["abstained"][0] == 0, one
        assert min(one["detected"][1], one["false_alarms"][1]) > 0
        assert name in again.out


@pytest.mark.parametrize("judge", ["critic", "pair-judge"])
async def test_a_dead_server_ends_the_bench_at_its_first_request(tmp_path: Path, judge: str) -> None:
    kept = tmp_path / "table.json"
    async with OpenAIServer(careless) as server:
        await server.stop()
        done = await bench(server, tmp_path, "--judge", judge, "-o", kept)
    assert done.code == 1
    assert f"{judge}: no model answers" in done.err
    assert not kept.exists()


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "Your key is over"), (404, "This model is only supported in v1/responses.")],
)
async def test_a_refused_key_or_model_ends_the_bench_at_its_first_request(
    tmp_path: Path, status: int, said: str
) -> None:
    kept = tmp_path / "table.json"
    async with OpenAIServer(lambda _: Answer(said, status=status)) as server:
        done = await bench(server, tmp_path, "--judge", "critic", "-o", kept)
    assert done.code == 1
    assert "critic: no model answers" in done.err
    assert said in " ".join(done.err.split())
    assert not kept.exists()
    assert len(server.bodies) <= 2


@pytest.mark.parametrize("seconds", ["60", "3600"])
async def test_the_time_limit_of_a_request_is_that_of_the_services_too(tmp_path: Path, seconds: str) -> None:
    async with OpenAIServer(careless, latency=2.0) as server:
        environment = {
            "OPENAI_BASE_URL": server.base_url,
            "MODEL": "m",
            "DRAMATURG_GENERATION_LEDGER": str(tmp_path / "ledger.sqlite3"),
            "DRAMATURG_GATEWAY_JUDGE_TIMEOUT_SECONDS": "1",
        }
        options = ("--judge", "challenge-judge", "--timeout", seconds, "--json")
        done = await dramaturg("research", "prompts", "bench", *options, environment=environment)
    assert done.code == 0, done.err
    assert done.json["errors"] == []
