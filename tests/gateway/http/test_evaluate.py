"""The whole evaluation in one JSON call, and its OpenAPI document."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from dramaturg.api.judging.v1.pair_judge_service_pb2 import PREFERENCE_SECOND
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import FakeJudge, serve
from gateway.app import App
from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from gateway.settings import GatewaySettings, JudgeEntry
from tests.support.auth import holder, token_settings
from tests.support.harness_rows import CRITERIA, PROMPT, ROWS, scripted
from tests.support.pairs import BAD, GOOD, SOURCE, everyone, pair_judge
from tests.support.texts import judge

EVALUATOR = holder("research", "evaluator")
VIEWER = holder("research", "viewer")
TEXTS: dict[str, Any] = {
    "texts": {
        "task": {"goal": "Where is my order?"},
        "texts": [{"id": str(index), "text": row.output} for index, row in enumerate(ROWS)],
        "criteria": CRITERIA,
    }
}
SCRIPTS: dict[str, Any] = {
    "scripts": {
        "task": {"goal": "Make tea"},
        "candidates": [{"id": "a", "text": "1. Boil. 2. Pour."}],
        "roles": ["critic"],
        "goldAnswer": {"steps": [{"text": "Boil."}]},
        "goldAnswerSource": "GOLD_ANSWER_SOURCE_GIVEN",
    }
}
PAIR: dict[str, Any] = {
    "pair": {
        "source": SOURCE,
        "first": {"text": GOOD},
        "second": {"text": BAD},
        "roles": {"criteria": CRITERIA[:1]},
    }
}


@dataclass
class Served:
    """A gateway over HTTP."""

    url: str

    async def post(self, body: Any, token: str = EVALUATOR.token) -> tuple[int, Any]:
        data = body if isinstance(body, str) else json.dumps(body)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/v1/evaluate", data=data, headers=headers) as response,
        ):
            return response.status, await response.json()

    async def document(self) -> Mapping[str, Any]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/v1/openapi.json") as response:
            assert (response.status, response.content_type) == (200, "application/json")
            found: Mapping[str, Any] = await response.json()
            return found


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    critic = FakeJudge(criteria=["no_missing_steps"])
    front = HttpServer(HttpSettings(), 0)
    compare = pair_judge(everyone(PREFERENCE_SECOND))
    async with (
        serve(judge(scripted).contract()) as rubric,
        serve(critic.contract()) as critics,
        serve(compare) as pairs,
    ):
        entries = (
            JudgeEntry(role="rubric-judge", name="judge-0", target=rubric.target),
            JudgeEntry(role="critic", name="ours", target=critics.target),
            JudgeEntry(role="pair-judge", name="fake", target=pairs.target),
        )
        async with (
            App(GatewaySettings(judges=entries)).open() as contracts,
            Server(
                contracts,
                ServerSettings.loopback(max_message_bytes=64 * 1024),
                token_settings(tmp_path, EVALUATOR, VIEWER),
                fronts=[front],
            ),
        ):
            yield Served(front.url)


def validator(document: Mapping[str, Any], schema: str) -> jsonschema.Draft202012Validator:
    root = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
    jsonschema.Draft202012Validator.check_schema(root)
    return jsonschema.Draft202012Validator(root)


async def test_the_whole_result_comes_in_one_answer(served: Served) -> None:
    status, answer = await served.post(TEXTS)
    assert status == 200, answer
    texts = answer["result"]["texts"]
    outcomes = {True: "OUTCOME_PASS", False: "OUTCOME_FAIL", None: "OUTCOME_ABSTAIN"}
    assert [one["verdicts"][0]["outcome"] for one in texts] == [outcomes[row.polite] for row in ROWS]
    assert texts[0]["assessments"][0]["assessment"]["provenance"]["prompts"][0]["sha256"] == PROMPT
    document = await served.document()
    validator(document, "Response").validate(answer)
    status, answer = await served.post(SCRIPTS)
    assert (status, answer["result"]["candidates"][0]["candidateId"]) == (200, "a")
    validator(document, "Response").validate(answer)
    status, answer = await served.post(PAIR)
    assert status == 200, answer
    validator(document, "Request").validate(PAIR)
    validator(document, "Response").validate(answer)


def without_goal(body: Any) -> None:
    del body["texts"]["task"]["goal"]


def unknown_field(body: Any) -> None:
    body["texts"]["colour"] = "red"


def bad_id(body: Any) -> None:
    body["texts"]["criteria"][0]["id"] = "Not Snake"


def too_many(body: Any) -> None:
    body["texts"]["texts"] = [{"id": str(index), "text": "a"} for index in range(201)]


def no_texts(body: Any) -> None:
    body["texts"]["texts"] = []


def two_kinds(body: Any) -> None:
    body.update(SCRIPTS)


def another_kind(body: Any) -> None:
    body["graphs"] = body.pop("texts")


def no_object(body: Any) -> None:
    body["texts"] = []


def bad_type(body: Any) -> None:
    body["texts"]["texts"][0]["text"] = {"a": 1}


@pytest.mark.parametrize(
    "change",
    [without_goal, unknown_field, bad_id, too_many, no_texts, two_kinds, another_kind, no_object, bad_type],
)
async def test_the_document_refuses_what_the_call_refuses(
    served: Served, change: Callable[[Any], None]
) -> None:
    requests = validator(await served.document(), "Request")
    assert requests.is_valid(TEXTS)
    assert requests.is_valid(SCRIPTS)
    body = copy.deepcopy(TEXTS)
    change(body)
    assert not requests.is_valid(body)
    status, error = await served.post(body)
    assert (status, error["code"]) == (400, "invalid_argument")
    validator(await served.document(), "Error").validate(error)


async def test_callers_and_limits_are_those_of_other_calls(served: Served) -> None:
    assert (await served.post(TEXTS, token="wrong"))[0] == 401
    assert (await served.post(TEXTS, token=VIEWER.token))[0] == 403
    large = copy.deepcopy(TEXTS)
    large["texts"]["texts"][0]["text"] = "a" * 70_000
    assert (await served.post(large))[0] == 429
    for body in ("", "[]", "{", '{"texts": ' + "[" * 20_000, '{"texts": 1}', "{}"):
        assert (await served.post(body))[0] == 400, body[:20]
    unknown = copy.deepcopy(TEXTS)
    unknown["texts"]["judges"] = [{"role": "rubric-judge", "judge": "nobody"}]
    status, error = await served.post(unknown)
    assert status == 400
    assert "nobody" in error["message"]
