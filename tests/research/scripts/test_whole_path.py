"""From abstract goals to a leaderboard, with the commands alone, against a server of the OpenAI protocol."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.generation.v1 import generation_service_pb2 as generation
from tests.support.command_line import Finished, dramaturg, read_jsonl
from tests.support.judges import all_pass
from tests.support.openai_server import Body, OpenAIServer

GOALS = "How to buy zoo tickets\tLeisure\n\nBake a cake\tFood\nPlant a tree\n"


def respond(body: Body) -> Any:
    """Adds constraints, writes scripts, and judges."""
    question = body["messages"][-1]["content"]
    form = (body.get("response_format") or {}).get("json_schema")
    if form is None:
        return f"1. Begin.\n2. Let {body['model']} go on.\n3. End."
    if form["name"] == "constraints":
        goal = question.split("[BEGIN goal ")[1].split("\n")[1]
        words = ["online", "for two people", "in winter"]
        goals = [f"{goal} {' '.join(words[:count])}" for count in (1, 2)]
        # The last one does not say its constraint.
        return {
            "idea": "Why not?",
            "constraints": [
                {"constraint": word, "goal": text}
                for word, text in zip(words, [*goals, f"{goal} soon"], strict=True)
            ],
        }
    request = generation.GenerateRequest(
        messages=[generation.Message(text=question)],
        json_format=generation.JsonFormat(name=form["name"], schema=json.dumps(form["schema"])),
    )
    return all_pass(request).text


def fill_in(sheet: Path) -> None:
    """Does what a person would do: accepts, edits and rejects."""
    rows = list(csv.DictReader(sheet.read_text(encoding="utf-8-sig").splitlines()))
    for row in rows:
        row["status"] = "rejected" if row["not_in_goal"] else "accepted"
    rows[0] |= {
        "status": "edited",
        "edited_goal": "Buy zoo tickets by telephone",
        "edited_constraints": "by telephone",
    }
    with sheet.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


async def go(folder: Path, server: OpenAIServer) -> list[Finished]:
    """The documented sequence (docs/research/test-sets.md)."""
    config = folder / "dramaturg.toml"
    config.write_text(
        f'[generation]\nledger = "{folder / "ledger.sqlite3"}"\n'
        f'[generation.providers.local]\nkind = "chat"\nbase_url = "{server.base_url}"\n'
        'default_model = "m"\n'
    )
    environment = {"DRAMATURG_CONFIG": str(config)}
    (folder / "goals.txt").write_text(GOALS, encoding="utf-8")
    sheet = folder / "sheet"
    done = [
        await dramaturg(
            "research",
            "tasks",
            "expand",
            folder / "goals.txt",
            "-o",
            sheet,
            "--json",
            environment=environment,
        )
    ]
    fill_in(sheet / "review.csv")
    tasks, scripts = folder / "tasks.jsonl", folder / "scripts.jsonl"
    done.append(await dramaturg("research", "scripts", "review", sheet / "review.csv", "-o", tasks, "--json"))
    models = ("--model", "llama", "--model", "qwen", "--temperature", "0.7")
    done.append(
        await dramaturg(
            "research", "scripts", "write", tasks, *models, "-o", scripts, "--json", environment=environment
        )
    )
    out = ("--judge-model", "judge", "--group-by", "constraints", "--out", folder / "out", "--json")
    done.append(await dramaturg("eval", "--kind", "scripts", scripts, *out, environment=environment))
    return done


@pytest.mark.slow
async def test_goals_become_a_leaderboard_and_a_second_run_costs_nothing(tmp_path: Path) -> None:
    async with OpenAIServer(respond) as server:
        expanded, reviewed, written, evaluated = await go(tmp_path, server)
        # Checks of models have no messages.
        calls = sum(bool(request.body["messages"]) for request in server.requests)
        again = await go(tmp_path, server)
        assert sum(bool(request.body["messages"]) for request in server.requests) == calls
    assert [one.code for one in (expanded, reviewed, written, evaluated)] == [0, 0, 0, 0], expanded.err
    assert (expanded.json["goals"], expanded.json["tasks"], expanded.json["kept"]) == (3, 9, 9)
    assert expanded.json["unworded"] == 3
    assert reviewed.json["statuses"] == {"accepted": 5, "edited": 1, "rejected": 3}
    assert (written.json["asked"], written.json["failed"], written.json["rows"]) == (12, 0, 6)
    rows = read_jsonl(tmp_path / "scripts.jsonl")
    assert rows[0]["task"] == {
        "id": "1/0/1",
        "goal": "Buy zoo tickets by telephone",
        "constraints": ["by telephone"],
        "topic": "Leisure",
        "abstractGoal": "How to buy zoo tickets",
    }
    assert rows[0]["tags"] == {"topic": "Leisure", "constraints": "1", "sampling": "temperature=0.7"}
    assert [one["model"] for one in rows[0]["candidates"]] == ["llama", "qwen"]
    assert "Let qwen go on." in rows[0]["candidates"][1]["text"]
    record = read_jsonl(tmp_path / "scripts.written.jsonl")
    assert len(record) == 12
    assert record[0]["response"]["provenance"]["parameters"] == {"temperature": "0.7"}
    assert record[0]["response"]["provenance"]["prompts"][0]["name"] == "write_script"
    board = evaluated.json
    assert board["failed_sample_count"] == 0
    figures = board["scripts"]["figures"]
    assert {one["model"] for one in figures if not one["all_models"]} == {"llama", "qwen"}
    assert {one["tags"]["constraints"] for one in figures if one["tags"]} == {"1", "2"}
    # Three goals of three constraints each; 12 scripts; 6 gold answers and 3 agents for each script.
    assert calls == 3 + 12 + 6 + 3 * 12
    assert again[-1].json["usage"]["provider_call_count"] == 0
    assert again[-1].json["scripts"] == board["scripts"]
