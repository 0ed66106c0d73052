"""A whole evaluation before an endpoint that misbehaves: what can be saved is, the rest abstains."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest, ScriptsResult
from dramaturg.client import DramaturgClient
from gateway.launch.platform import local_platform
from tests.support.openai_server import FAILURES, Misbehaviour, OpenAIServer
from tests.support.scripted_model import judge

SAMPLES = Path(__file__).resolve().parents[2] / "examples" / "scripts" / "tasks.jsonl"
SAVED = FAILURES | {"code_fence", "string_booleans"}
"""The troubles after which a retry, or a careful reading, gives the very same answer."""

Key = tuple[str, str, str]


async def evaluate(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> list[ScriptsResult]:
    """Evaluates all samples through every service, each with a ledger of its own folder."""
    configuration = folder / "dramaturg.toml"
    configuration.write_text(
        f"""
        [generation]
        ledger = "{folder / "ledger.sqlite3"}"
        [generation.providers.local]
        kind = "chat"
        base_url = "{server.base_url}"
        default_model = "test-model"
        # Hangs would lower it to one call after the other. All at once, on a busy machine, would have some
        # answers come after the attempt's timeout: those are bought again, rightly.
        concurrency.minimum = 16
        concurrency.start = 16
        concurrency.maximum = 16
        [generation.providers.local.retries]
        attempt_timeout_seconds = 5.0
        transient_attempts = 20
        request_failures = 1000
        first_wait_seconds = 0.0
        """
    )
    monkeypatch.setenv("DRAMATURG_CONFIG", str(configuration))
    requests = [
        ParseDict(json.loads(line), EvaluateScriptsRequest())
        for line in SAMPLES.read_text(encoding="utf-8").splitlines()
    ]
    async with local_platform() as target, DramaturgClient(target) as client:
        return list(await asyncio.gather(*(evaluate_sample(client, request) for request in requests)))


async def evaluate_sample(client: DramaturgClient, request: EvaluateScriptsRequest) -> ScriptsResult:
    events = client.evaluate_scripts(request, timeout=100)
    [result] = [event.result async for event in events if event.HasField("result")]
    return result


def outcomes(results: list[ScriptsResult]) -> dict[Key, str]:
    return {
        (result.task.id, candidate.candidate_id, verdict.criterion): (
            AbstainReason.Name(verdict.abstain_reason).removeprefix("ABSTAIN_REASON_")
            if verdict.outcome == Outcome.OUTCOME_ABSTAIN
            else Outcome.Name(verdict.outcome).removeprefix("OUTCOME_")
        )
        for result in results
        for candidate in result.candidates
        for verdict in candidate.verdicts
    }


_found: list[dict[Key, str]] = []


@pytest.fixture
async def undisturbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[Key, str]:
    """What an undisturbed evaluation finds, found once."""
    if not _found:
        async with OpenAIServer(judge) as server:
            verdicts = outcomes(await evaluate(server, monkeypatch, tmp_path))
        assert len(verdicts) == 7 * 32
        assert set(verdicts.values()) == {"PASS", "FAIL"}
        _found.append(verdicts)
    return _found[0]


def assert_nothing_bought_twice(server: OpenAIServer) -> None:
    assert not {mark: count for mark, count in server.answered.items() if count > 1}


@pytest.mark.slow
async def test_what_a_retry_or_a_careful_reading_can_save_is_saved(
    undisturbed: dict[Key, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "disturbed"
    folder.mkdir()
    trouble = Misbehaviour(dict.fromkeys(sorted(SAVED), 0.1), seed=7)
    async with OpenAIServer(judge, trouble) as server:
        assert outcomes(await evaluate(server, monkeypatch, folder)) == undisturbed
        assert set(server.troubles) == SAVED
        assert_nothing_bought_twice(server)


@pytest.mark.slow
async def test_what_cannot_be_saved_abstains_with_its_reason_and_is_not_kept(
    undisturbed: dict[Key, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "disturbed"
    folder.mkdir()
    async with OpenAIServer(judge, Misbehaviour.every_kind(0.09, seed=3)) as server:
        verdicts = outcomes(await evaluate(server, monkeypatch, folder))
        assert verdicts.keys() == undisturbed.keys()
        differing = {key: verdict for key, verdict in verdicts.items() if verdict != undisturbed[key]}
        reasons = Counter(differing.values())
        assert set(reasons) <= {"EMPTY", "REFUSED", "TRUNCATED", "UNPARSABLE"}
        assert reasons["REFUSED"]
        assert len(differing) < len(verdicts) / 2
        assert_nothing_bought_twice(server)

        # The same ledger, an endpoint that behaves: what failed was not kept, what stood is not bought anew.
        bought = dict(server.answered)
        server.misbehaviour = Misbehaviour()
        assert outcomes(await evaluate(server, monkeypatch, folder)) == undisturbed
        assert all(server.answered[mark] == count for mark, count in bought.items())
