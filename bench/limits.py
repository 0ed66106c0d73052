"""Calls and time at servers with limits, as ratios: real HTTP, time scaled down.

Seven servers: 4 calls at once; 60 a minute, stated in headers and not; a bucket of tokens a minute; one call
at a time; a burst and then a steady rate; answers that take 150 s. A minute takes ``60 / scale`` seconds.

    python -m bench.limits [--scale 20] [--json]

Prints for each server the calls for an answer, the calls for an answer after the first minute, and the wall
time over the shortest possible one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from services.generation.app import App
from services.generation.settings import EndpointSettings, GenerationSettings, RetrySettings
from tests.support.http_servers import serve_http
from tests.support.limited_servers import (
    Concurrent,
    FixedWindow,
    LimitedServer,
    SingleSlot,
    TokenBucket,
    Unlimited,
)

Make = Callable[[Callable[[], float], float], LimitedServer]

SERVERS: dict[str, tuple[int, Make]] = {
    "4 at once": (300, lambda clock, scale: Concurrent(clock, 1.0 / scale)),
    "60 a minute, stated": (
        150,
        lambda clock, scale: FixedWindow(clock, 0.5 / scale, period=60 / scale, tells=True),
    ),
    "60 a minute": (150, lambda clock, scale: FixedWindow(clock, 0.5 / scale, period=60 / scale)),
    "tokens a minute": (
        150,
        lambda clock, scale: TokenBucket(clock, 0.5 / scale, capacity=6000, refill=100 * scale, cost=100),
    ),
    "one at a time, 6 s": (52, lambda clock, scale: SingleSlot(clock, 6.0 / scale)),
    "burst, then steady": (
        300,
        lambda clock, scale: TokenBucket(clock, 0.5 / scale, capacity=100, refill=scale),
    ),
    "150 s an answer": (52, lambda clock, scale: Unlimited(clock, 150.0 / scale)),
}


@asynccontextmanager
async def served(server: LimitedServer) -> AsyncIterator[str]:
    """Serves over HTTP; yields the address."""

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        answered, headers = await server.handle()
        if not answered:
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers=dict(headers))
        message = {"role": "assistant", "content": "yes"}
        usage = {"prompt_tokens": 40, "completion_tokens": 60}
        answer = {
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": usage,
        }
        return web.json_response(answer, headers=dict(headers))

    async with serve_http(web.post("/v1/chat/completions", complete)) as address:
        yield f"{address}/v1"


async def measure(make: Make, count: int, scale: float) -> dict[str, float]:
    """Asks all questions at once, and counts."""
    server = make(time.monotonic, scale)
    async with served(server) as base_url:
        provider = EndpointSettings(
            base_url=base_url,
            default_model="m",
            rate_period_seconds=60 / scale,
            retries=RetrySettings(attempt_timeout_seconds=600 / scale),
        )
        settings = GenerationSettings(ledger=":memory:", providers={"p": provider})
        async with App(settings).open() as contracts:
            generator = contracts[0].servicer.generator
            requests = [
                pb.GenerateRequest(
                    messages=[pb.Message(role=pb.MESSAGE_ROLE_USER, text=f"question {number}")]
                )
                for number in range(count)
            ]
            begun = time.monotonic()
            answers = await asyncio.gather(*(generator.generate(request) for request in requests))
            wall = time.monotonic() - begun
    assert len(answers) == server.answers == count
    later = [taken for at, taken in server.log if at > begun + 60 / scale]
    return {
        "calls_per_answer": round(server.calls / count, 3),
        "calls_per_answer_later": round(len(later) / max(1, later.count(True)), 3),
        "wall_over_ideal": round(wall / server.ideal(count), 3),
    }


def main() -> None:
    """Measures every server, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=20.0, help="how many seconds pass in one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    measured = {
        name: asyncio.run(measure(make, count, options.scale)) for name, (count, make) in SERVERS.items()
    }
    if options.json:
        print(json.dumps(measured))
        return
    print(f"{'server':22} calls/answer  later  wall/ideal")
    for name, figures in measured.items():
        print(
            f"{name:22} {figures['calls_per_answer']:12} {figures['calls_per_answer_later']:6} "
            f"{figures['wall_over_ideal']:11}"
        )


if __name__ == "__main__":
    main()
