"""The modules and functions of the project that one request enters, in all services that serve it.

The request is EvaluateScripts with one candidate: a gold answer, and one call to each of the three judges.
All services run in this process, with a scripted model, and call each other over gRPC as if they were
apart. The caller is a bare channel, of which nothing counts. The first request loads and connects. Of the
``--repeat`` next ones, what every one of them enters is counted, so that the background of the services does
not count.

A function is written with ``def`` or ``lambda``. Comprehensions and generated stubs do not count.

    python -m bench.call_path [--repeat 5] [--list] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict

from bench.load.kinds import SAMPLES
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from gateway.launch.platform import local_platform
from tests.support.openai_server import OpenAIServer
from tests.support.scripted_model import judge

ROOT = Path(__file__).resolve().parent.parent
PARTS = tuple(f"{ROOT}/{name}/" for name in ("dramaturg", "gateway", "services"))
GENERATED = f"{ROOT}/dramaturg/api/"
NO_FUNCTIONS = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<module>"}

Function = tuple[str, str, int]
"""The module, the qualified name and the line of a function."""


class Recorder:
    """Records the functions that are entered in all threads of this process, while it is on."""

    def __init__(self) -> None:
        self.entered: set[Function] | None = None
        """The functions. None: nothing is recorded."""

    def install(self) -> None:
        """Installs itself in this thread and in all that are started later."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        del argument
        code, entered = frame.f_code, self.entered
        if entered is None or event != "call" or not code.co_filename.startswith(PARTS):
            return
        if code.co_name not in NO_FUNCTIONS and not code.co_filename.startswith(GENERATED):
            module = code.co_filename.removeprefix(f"{ROOT}/")
            entered.add((module, code.co_qualname, code.co_firstlineno))


async def entered_by_requests(repeat: int, recorder: Recorder) -> set[Function]:
    """The functions that each of some requests enters."""
    line = SAMPLES.read_text(encoding="utf-8").splitlines()[0]
    found: set[Function] | None = None
    async with local_platform() as target, grpc.aio.insecure_channel(target) as channel:
        stub = EvaluationServiceStub(channel)
        for number in range(repeat + 1):
            request = ParseDict(json.loads(line), EvaluateScriptsRequest())
            request.task.goal += f" {number}"  # a request that the ledger does not answer
            del request.candidates[1:]
            recorder.entered = set()
            last: Any = None
            async for event in stub.EvaluateScripts(request, timeout=60):
                last = event
            entered, recorder.entered = recorder.entered, None
            if any(verdict.abstain_reason for verdict in last.result.candidates[0].verdicts):
                raise RuntimeError(f"a judge abstained: {last}")
            if number:
                found = entered if found is None else found & entered
    assert found is not None
    return found


async def measure(repeat: int) -> set[Function]:
    """The functions of one request."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        async with OpenAIServer(judge) as server:
            configuration = Path(folder) / "dramaturg.toml"
            configuration.write_text(
                f"""
                [generation]
                ledger = "{folder}/ledger.sqlite3"
                [generation.providers.local]
                kind = "chat"
                base_url = "{server.base_url}"
                default_model = "m"
                """,
                encoding="utf-8",
            )
            os.environ["DRAMATURG_CONFIG"] = str(configuration)
            recorder.install()
            try:
                return await entered_by_requests(repeat, recorder)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the modules and functions that one request enters.")
    parser.add_argument("--repeat", type=int, default=5, help="requests after the first one")
    parser.add_argument("--list", action="store_true", help="print the functions")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    functions = asyncio.run(measure(given.repeat))
    modules = Counter(module for module, _, _ in functions)
    figures = {"modules": len(modules), "functions": len(functions)}
    for part in PARTS:
        name = Path(part).name
        own = {module: count for module, count in modules.items() if module.startswith(f"{name}/")}
        figures |= {f"{name}_modules": len(own), f"{name}_functions": sum(own.values())}
    if given.json:
        print(json.dumps(figures))
        return
    for name, count in figures.items():
        print(f"{count:5}  {name.replace('_', ' ')}")
    if given.list:
        for module, name, line in sorted(functions, key=lambda one: (one[0], one[2])):
            print(f"{module}:{line} {name}")


if __name__ == "__main__":
    main()
