"""The 50 rows that go through each harness, and the scripted judge that judges them."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dramaturg.api.common.v1 import provenance_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.judge.roles import JUDGE_CONTRACT
from dramaturg.judge.verdicts import abstained, failed, finding, passed, scored
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import FakeJudge, in_thread, serve, serve_gateway
from gateway.app import App
from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from gateway.settings import GatewaySettings, JudgeEntry
from tests.support.examples import EXAMPLES
from tests.support.texts import judge, registered

RUBRIC = EXAMPLES / "integrations" / "rubric.toml"
QUESTION = "Where is my order?"
CRITERIA: list[dict[str, Any]] = [
    {"id": "polite", "passes": "The answer greets the customer."},
    {"id": "clear", "description": "How easy it is to follow.", "scale": {"lowest": 1, "highest": 5}},
]
PROMPT = "a" * 64
TIME = "2026-03-02T09:30:00Z"
COST_USD = 0.25
"""The cost of each call."""


class Row(NamedTuple):
    """A question, an answer, and the judgements of the scripted judge."""

    goal: str
    output: str
    polite: bool | None
    clear: float | None
    """The place of the score on its scale, from 0 to 1."""

    def expected(self) -> Mapping[str, float | None]:
        """The value of each criterion. None: an abstention."""
        return {"polite": None if self.polite is None else float(self.polite), "clear": self.clear}


def _row(number: int) -> Row:
    polite = (True, False, None, True, True)[number % 5]
    clear = None if number % 7 == 3 else (number % 5) / 4
    greeting = {True: "Hello!", False: "Well.", None: "???"}[polite]
    return Row(f"{QUESTION} ({number})", f"{greeting} Order {number} ships tomorrow.", polite, clear)


ROWS = [_row(number) for number in range(50)]
_BY_OUTPUT = {row.output: row for row in ROWS}


def scripted(request: JudgeRequest, candidate: JudgeCandidate) -> Assessment:
    """Judges a row as it states; any other text passes if it greets, and is clear."""
    row = _BY_OUTPUT.get(candidate.text) or Row("", "", "Hello" in candidate.text, 1.0)
    rude = finding(verdict_pb2.FINDING_KIND_UNSPECIFIED, "It greets nobody.")
    verdicts = {
        "polite": abstained("polite", verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "No answer.")
        if row.polite is None
        else passed("polite", rationale="It greets.")
        if row.polite
        else failed("polite", [rude], rationale="It is rude."),
        "clear": abstained("clear", verdict_pb2.ABSTAIN_REASON_TIMED_OUT)
        if row.clear is None
        else scored("clear", 1 + 4 * row.clear, rationale="As it reads."),
    }
    provenance = provenance_pb2.Provenance(name="fake-judge", version="1.0.0", contract=JUDGE_CONTRACT)
    provenance.prompts.add(name="rubric", sha256=PROMPT)
    usage = provenance_pb2.Usage(cost_usd=COST_USD, provider_call_count=1)
    provenance.completions.add(fingerprint=candidate.id, requested_model="m", usage=usage)
    provenance.usage.CopyFrom(usage)
    return Assessment(
        verdicts=[verdicts[one.id] for one in request.criteria],
        provenance=provenance,
        reading=verdict_pb2.READING_TEXT,
    )


def copy_examples(folder: Path) -> Path:
    """Copies the examples into a folder, with the rows in place of their answers; returns their folder."""
    copied = folder / "examples" / "integrations"
    shutil.copytree(EXAMPLES / "integrations", copied)
    rows = (
        {"question": row.goal, "answer": row.output, "trace_id": trace_id(number), "time": TIME}
        for number, row in enumerate(ROWS)
    )
    (copied / "answers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return copied


def trace_id(number: int) -> str:
    """The trace of a row."""
    return f"{number:032x}"


@contextmanager
def http_gateway() -> Iterator[str]:
    """Serves a gateway with the scripted judge over HTTP in a thread; yields its address."""
    with in_thread(_over_http()) as url:
        yield url


@asynccontextmanager
async def _over_http() -> AsyncIterator[str]:
    front = HttpServer(HttpSettings(), 0)
    async with serve(judge(scripted).contract()) as served:
        entry = JudgeEntry(role="rubric-judge", name="judge-0", target=served.target)
        async with (
            App(GatewaySettings(judges=(entry,))).open() as contracts,
            Server(contracts, ServerSettings.loopback(), fronts=[front]),
        ):
            yield front.url


@contextmanager
def gateway(**settings: Any) -> Iterator[tuple[str, FakeJudge]]:
    """Serves a gateway with the scripted judge in a thread; yields its address and the judge."""
    scripted_judge = judge(scripted)
    with in_thread(serve_gateway(*registered(scripted_judge), **settings)) as server:
        yield server.target, scripted_judge
