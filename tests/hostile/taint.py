"""A platform of two tenants, whose providers and judges quote what they are sent; and marks.

The marked tenant puts a new mark into every text that it sends. What the other reads is searched for marks.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_PASS, Finding, Verdict
from dramaturg.judge.verdicts import passed
from dramaturg.service.errors import ServiceError
from dramaturg.service.logs import JsonFormatter
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.service.validation import limits_of, text_rules
from dramaturg.testing import FakeJudge, serve
from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from gateway.launch.platform import Overview, Platform, RunningService
from gateway.runs.settings import RunsSettings
from tests.hostile.requests import holds_text
from tests.support.auth import channel_of, holder, token_settings
from tests.support.generation import WITHOUT_WAITS
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.scripted_model import approve

MARKED, OTHER = holder("team-b", "operator"), holder("team-c", "operator")
"""The tenant whose texts are marked, and the one that must not see them."""
MARK = re.compile(r"taint\d{6}x", re.IGNORECASE)
MODEL = "m"
"""The model of every provider."""
HEALTHY = "healthy"
"""The provider that quotes only in its answers."""
HANGING = "hanging"
"""The provider that never answers the marked tenant."""
ANSWERING = "answering"
"""The provider that answered the marked tenant before it fails."""
ATTEMPT_SECONDS = 0.4
NO_WAITS = {"drain_timeout_seconds": 0, "outage_timeout_seconds": 0}
LONGEST_TEXT = 20_000
"""The longest limit that marked texts exceed."""


class Marks:
    """Marks, each for one place."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._places)

    def new(self, place: str) -> str:
        """A new mark, as a word that most forms of fields allow."""
        mark = f"taint{next(self._numbers):06d}x"
        self._places[mark] = place
        return mark

    def of(self, method: str) -> Callable[[str, FieldDescriptor], Iterator[str]]:
        """The marked texts of a field: one that its limits allow, and one that they do not."""

        def write(path: str, field: FieldDescriptor) -> Iterator[str]:
            if not holds_text(field):
                return
            limits = limits_of(field)
            text_field = field.message_type.fields_by_name["value"] if field.message_type else field
            rules = tuple(text_rules(text_field, limits, 1 << 30))
            mark = self.new(f"{method}.{path}")
            forms = (mark, f"127.0.0.1/{mark}", mark.upper(), f"{mark}@localhost:1")
            allowed = [text for text in forms if not any(rule(text) for rule in rules)]
            yield allowed[0] if allowed else mark
            if 0 < limits.max_length <= LONGEST_TEXT:
                yield self.new(f"{method}.{path}, too long") + "x" * limits.max_length

        return write

    def place(self, mark: str) -> str:
        """Where a mark stands."""
        return self._places.get(mark.lower(), "unknown")


@dataclass
class Read:
    """What a tenant read."""

    texts: list[tuple[str, bytes]] = field(default_factory=list)
    """Each place, with what stands there."""

    def note(self, place: str, what: Any) -> None:
        """Adds a response, an error or a text."""
        if isinstance(what, grpc.aio.AioRpcError):
            parts = (what.details(), *itertools.chain(*what.trailing_metadata(), *what.initial_metadata()))
            what = b"\n".join(one if isinstance(one, bytes) else str(one).encode() for one in parts)
        elif isinstance(what, str):
            what = what.encode()
        elif not isinstance(what, bytes):
            what = what.SerializeToString()
        self.texts.append((place, what))

    def marks(self) -> Iterator[tuple[str, str]]:
        """The marks that were read, each with the place."""
        for place, text in self.texts:
            for mark in sorted({found.lower() for found in MARK.findall(text.decode("latin-1"))}):
                yield place, mark


def words_of(body: Body) -> str:
    """The messages of a request to a provider, as one text."""
    return " ".join(str(message["content"]) for message in body["messages"])


def _approved(body: Body) -> str:
    return approve(body) if (body.get("response_format") or {}).get("json_schema") else "1. Heat water."


Quote = Callable[[str], "Answer | str"]
QUOTES: Mapping[str, Quote] = {
    "rejected": lambda words: Answer(f"cannot process: {words}", status=400),
    "parameter": lambda words: Answer(
        f"Unsupported parameter: 'response_format' is not supported with this model: {words}", status=400
    ),
    "parameter-in-text": lambda words: Answer(f"{words} temperature is not supported, use 1", status=400),
    "internal-parameter": lambda words: Answer(
        f"json_schema is not implemented for the prompt {words}", status=500
    ),
    "code": lambda words: Answer("refused", status=400, error_code=words[:1000]),
    "credentials": lambda words: Answer(f"Incorrect API key for {words}", status=401),
    "credit": lambda words: Answer(f"insufficient_quota for {words}", status=402),
    "forbidden": lambda words: Answer(f"not allowed: {words}", status=403),
    "model": lambda words: Answer(
        f"The model {words} does not exist", status=404, error_code="model_not_found"
    ),
    "too-large": lambda words: Answer(f"maximum context length exceeded by {words}", status=413),
    "filtered": lambda words: Answer(f"content_filter: {words}", status=400, error_code="content_filter"),
    "rate-limited": lambda words: Answer(
        f"slow down: {words}",
        status=429,
        headers={"Retry-After": "0", "x-ratelimit-limit-requests": words[-80:]},
    ),
    "broken": lambda words: Answer(f"cannot compute {words}", status=500),
    ANSWERING: lambda words: Answer(f"cannot compute {words} yet", status=500),
    "unavailable": lambda words: Answer(f"overloaded by {words}", status=503),
    "timeout": lambda words: Answer(f"gave up on {words}", status=504),
    "refusal": lambda words: Answer(refusal=f"I will not {words}"),
    "malformed": lambda words: f'{{"answer": {words}',
    "prose": lambda words: f"You wrote: {words}",
    "length": lambda words: Answer(words, finish_reason="length"),
    "other-model": lambda words: Answer(words, model=words[-190:]),
    "empty": lambda words: Answer("", usage={"note": words}),
}
"""What a provider answers to a marked request, by the name of the provider."""


async def quote(body: Body) -> Answer | str:
    """The answer of the providers: of quotes to marked requests, of approval to others."""
    words, model = words_of(body), str(body["model"])
    name = model.partition("@")[2] or HEALTHY
    if MARK.search(model) and name not in QUOTES:
        return Answer(f"The model {model} does not exist", status=404, error_code="model_not_found")
    if not MARK.search(f"{model} {words}"):
        return _approved(body)
    if name == HANGING:
        await asyncio.Event().wait()
    if name in QUOTES:
        # The marks come first: errors are shown in part.
        return QUOTES[name](" ".join([*MARK.findall(words), *words[-1000:].split()]))
    return _approved(body)


def _refusal(code: grpc.StatusCode) -> Callable[[str], Any]:
    def refuse(words: str) -> ServiceError:
        reason = ErrorReason.ERROR_REASON_UNSPECIFIED
        return ServiceError(code, reason, f"refused: {words}", metadata={"words": words})

    return refuse


MISBEHAVIOURS: Mapping[str, Callable[[str], Any]] = {
    # First, so that it is what the judge is put into quarantine for.
    "pass with a fault": lambda words: [
        Verdict(
            criterion="polite",
            outcome=OUTCOME_PASS,
            rationale=words[:500],
            findings=[Finding(description=words[:500])],
        )
    ],
    **{
        code.name: _refusal(code)
        for code in (
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.UNIMPLEMENTED,
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )
    },
    "criterion": lambda words: [passed(words[:90], rationale=words)],
    "criteria": lambda words: [Verdict(criterion=words[:90]) for _ in range(3)],
    "no verdict": lambda words: [],
}
"""What the shared judge returns for a marked candidate, by the id of the task."""


def _misbehave(request: Any, candidate: Any) -> Any:
    shown = f"{request.task.goal} {candidate}"
    words = " ".join([*MARK.findall(shown), shown])
    if MARK.search(words) and request.task.id in MISBEHAVIOURS:
        return MISBEHAVIOURS[request.task.id](words)
    if MARK.search(words):
        raise RuntimeError(words)
    return [passed(one.id, rationale="Fine.") for one in request.criteria]


SHARED_JUDGE = "mirror"
"""The judge of the configuration, of the role "rubric-judge", that quotes what it is sent."""


@dataclass
class TwoTenants:
    """The platform, as its tenants reach it."""

    marked: grpc.aio.Channel
    other: grpc.aio.Channel
    target: str
    url: str
    judge_target: str
    """The address of the shared judge, at which judges may be registered."""
    services: Sequence[RunningService]
    model: OpenAIServer


def model_of(provider: str) -> str:
    """The name of a provider's model in requests."""
    return f"{provider}/{MODEL}@{provider}"


def _configuration(url: str, judge: str, folder: Path) -> str:
    waits = "\n".join(f"{name} = {seconds}" for name, seconds in WITHOUT_WAITS.items())
    providers = [
        f"""
        [generation.providers.{name}]
        base_url = "{url}"
        default_model = "{MODEL}@{name}"
        rate_period_seconds = 0.06
        [generation.providers.{name}.retries]
        attempt_timeout_seconds = {ATTEMPT_SECONDS if name == HANGING else 20}
        transient_attempts = 3
        {waits}
        """
        for name in (HEALTHY, HANGING, *QUOTES)
    ]
    return f"""
    [generation]
    ledger = ":memory:"
    default_model = "{model_of(HEALTHY)}"
    [gateway]
    judges = [{{ role = "rubric-judge", name = "{SHARED_JUDGE}", target = "{judge}" }}]
    judge_targets = ["127.0.0.1:*"]
    quarantine_breaches = 3
    identity_timeout_seconds = 1
    [runs]
    dataset_folders = ["{folder}"]
    {"".join(providers)}
    """


@asynccontextmanager
async def two_tenants(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoTenants]:
    """Serves a platform with every service, the API over HTTP and the console."""
    overviews: list[Overview] = []
    runs = RunsSettings(
        enabled=True,
        url=f"sqlite:///{folder}/runs.sqlite3",
        drain_timeout_seconds=0,
        outage_timeout_seconds=0,
    )
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(OpenAIServer(quote, models=(MODEL,)))
        judge = FakeJudge(_misbehave, name="mirror")
        judges = await stack.enter_async_context(serve(judge.contract(), drain_grace_seconds=0.2))
        (folder / "dramaturg.toml").write_text(_configuration(model.base_url, judges.target, folder))
        monkeypatch.setenv("DRAMATURG_CONFIG", str(folder / "dramaturg.toml"))
        platform = Platform(announce=overviews.append, runs=runs)
        contracts = await stack.enter_async_context(platform.open())
        front = HttpServer(HttpSettings(), 0, console=True)
        serving = ServerSettings.loopback(drain_grace_seconds=0.2)
        auth = token_settings(folder, MARKED, OTHER)
        server = await stack.enter_async_context(Server(contracts, serving, auth, fronts=[front]))
        marked, other = [
            await stack.enter_async_context(channel_of(server.target, folder, who)) for who in (MARKED, OTHER)
        ]
        (overview,) = overviews
        yield TwoTenants(marked, other, server.target, front.url, judges.target, overview.services, model)


@contextmanager
def logged() -> Iterator[list[dict[str, Any]]]:
    """The lines of the log within a ``with`` block, of every level."""
    lines: list[dict[str, Any]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(self.format(record)))

    handler, root = Handler(), logging.getLogger()
    handler.setFormatter(JsonFormatter())
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
