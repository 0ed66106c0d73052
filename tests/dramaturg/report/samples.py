"""One sample of every kind of evaluation, with everything in it that a page can show."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.protobuf.json_format import ParseDict

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.cli.platform import gateway
from dramaturg.client import DramaturgClient
from dramaturg.report.groupings import find_groupings
from dramaturg.report.page import Heading, render

PROVENANCE = {
    "name": "llm-critic", "version": "1", "registeredName": "strict",
    "prompts": [{"name": "critique", "sha256": "ab" * 32}], "parameters": {"threshold": "0.95"},
    "completions": [
        {
            "requestedModel": "gpt", "answeredModel": "gpt-2026", "rawText": "the raw answer",
            "latency": "1.5s",
            "usage": {"promptTokenCount": "120", "completionTokenCount": "30", "costUsd": 0.01},
        },
    ],
}  # fmt: skip
VERDICTS = [
    {
        "criterion": "no_duplicate_steps", "outcome": "OUTCOME_FAIL", "confidence": 0.75,
        "measuredConfidence": 0.6, "rationale": "two steps do the same",
        "findings": [{"stepIndices": [0, 1], "description": "boil twice"}],
    },
    {"criterion": "executable", "outcome": "OUTCOME_ABSTAIN", "abstainReason": "ABSTAIN_REASON_TIMED_OUT"},
]  # fmt: skip
SCRIPTS = {
    "task": {"id": "t1", "goal": "make soup", "constraints": ["in one pot"], "topic": "Food"},
    "goldAnswer": {"script": {"steps": [{"text": "cook it"}]}},
    "candidates": [
        {
            "candidateId": "c1", "model": "writer",
            "script": {"steps": [{"text": "boil water"}, {"text": "boil the water"}]}, "verdicts": VERDICTS,
            "assessments": [
                {
                    "candidateId": "c1", "role": "critic", "judge": "strict",
                    "assessment": {"verdicts": VERDICTS, "provenance": PROVENANCE},
                },
            ],
        },
    ],
    "usage": {"providerCallCount": "1", "costUsd": 0.01},
}  # fmt: skip
COMPARISON = {
    "preference": "PREFERENCE_FIRST", "firstVoteShare": 0.8, "measuredConfidence": 0.67,
    "votes": [
        {
            "role": {"type": "Editor", "description": "reads for style"}, "preference": "PREFERENCE_FIRST",
            "ballots": [
                {
                    "order": "PRESENTATION_ORDER_SWAPPED", "preference": "PREFERENCE_FIRST",
                    "rationale": "it is clearer",
                },
            ],
        },
    ],
}  # fmt: skip
PAIR = {
    "id": "p1", "firstModel": "a", "secondModel": "b", "firstText": "The bridge was closed.",
    "secondText": "Nobody could cross.",
    "roles": {"roles": [{"type": "Editor", "description": "reads for style"}]},
    "comparisons": [{"method": "roles", "judge": "llm", "comparison": COMPARISON}],
    "longer": "PREFERENCE_SECOND",
}  # fmt: skip
DECISION = {
    "decision": {
        "id": "d1", "goal": "get home", "option1": "walk", "option2": "drive", "scenario": "it snows",
    },
    "gold": "CHOICE_OPTION_2",
    "choices": [
        {"model": "m", "prompt": "DECISION_PROMPT_NAIVE", "choice": "CHOICE_OPTION_1", "correct": False},
        {"model": "n", "prompt": "DECISION_PROMPT_STORY", "abstainReason": "ABSTAIN_REASON_REFUSED"},
    ],
}  # fmt: skip
DIALOGUE = {
    "script": {
        "id": "s1", "task": {"name": "shell", "description": "act as a shell"},
        "utterances": [{"speaker": "SPEAKER_USER", "text": "ls"}], "subset": "SCRIPT_SUBSET_FIRST_CHALLENGE",
        "turn": 1,
    },
    "replies": [{"model": "m", "text": "a.txt"}, {"model": "n", "text": "b.txt"}],
    "ratings": [
        {
            "model": "m", "judge": "llm",
            "rating": {"value": 7, "rationale": "plausible", "measuredConfidence": 0.9},
        },
        {"model": "n", "judge": "llm", "rating": {"abstainReason": "ABSTAIN_REASON_UNPARSABLE"}},
    ],
    "comparisons": [{"firstModel": "m", "secondModel": "n", "judge": "llm", "comparison": COMPARISON}],
}  # fmt: skip
GRAPHS = {
    "reference": {
        "id": "g1", "scenario": "bake a cake",
        "events": [{"id": "1", "text": "mix"}, {"id": "2", "text": "bake"}],
        "edges": [{"sourceId": "1", "targetId": "2"}],
    },
    "graphs": [
        {
            "model": "m",
            "graph": {
                "events": [{"id": "1", "text": "mix"}, {"id": "2", "text": "bake"}],
                "edges": [{"sourceId": "2", "targetId": "1"}],
            },
            "score": {"measures": {"f1": 0.0}}, "distance": {"distance": 2, "proven": True},
        },
        {"model": "n", "abstainReason": "ABSTAIN_REASON_TRUNCATED"},
    ],
}  # fmt: skip
TEXTS = {
    "task": {"id": "t1", "goal": "where is my order"},
    "criteria": [
        {"id": "polite", "passes": "It greets."},
        {
            "id": "clear", "description": "How clear it is.",
            "scale": {"lowest": 1, "highest": 5, "anchors": [{"value": 1, "meaning": "Confusing."}]},
        },
    ],
    "texts": [
        {
            "textId": "a", "model": "m", "text": "It ships tomorrow.",
            "verdicts": [
                {"criterion": "polite", "outcome": "OUTCOME_FAIL", "rationale": "no greeting"},
                {
                    "criterion": "clear", "outcome": "OUTCOME_SCORED", "score": 3.5,
                    "rationale": "rather short",
                },
            ],
            "assessments": [
                {
                    "judge": "strict",
                    "assessment": {
                        "verdicts": [{"criterion": "clear", "outcome": "OUTCOME_SCORED", "score": 4}],
                        "provenance": PROVENANCE,
                    },
                },
                {
                    "judge": "mild",
                    "assessment": {
                        "verdicts": [{"criterion": "clear", "outcome": "OUTCOME_SCORED", "score": 3}],
                    },
                },
            ],
        },
        {
            "textId": "b", "model": "n",
            "verdicts": [
                {"criterion": "polite", "outcome": "OUTCOME_FAIL"},
                {"criterion": "clear", "outcome": "OUTCOME_SCORED", "score": 1},
            ],
            "failureReason": "ABSTAIN_REASON_EMPTY",
        },
    ],
}  # fmt: skip
RESULTS = {
    "scripts": SCRIPTS, "pair": PAIR, "decision": DECISION, "dialogue": DIALOGUE, "graphs": GRAPHS,
    "texts": TEXTS,
    "scenarios": {
        "brief": {"goal": "find the hours", "option1": "ring the library", "option2": "look online"},
        "form": "SCENARIO_FORM_HARD_VERB_PHRASE", "duplicatesUnchecked": "no service",
        "scenarios": [
            {
                "id": "option-1/0", "target": "CHOICE_OPTION_1", "model": "m",
                "scenario": "is far from a screen", "baseScenario": "has no internet",
                "provenance": PROVENANCE,
            },
            {
                "id": "option-1/1", "target": "CHOICE_OPTION_1", "model": "m",
                "scenario": "is far from any screen", "duplicateOf": "option-1/0", "leaksOption": True,
            },
            {
                "id": "option-2/0", "target": "CHOICE_OPTION_2", "model": "n",
                "failureReason": "ABSTAIN_REASON_REFUSED",
            },
            {
                "id": "option-2/1", "target": "CHOICE_OPTION_2", "model": "n",
                "abstainReason": "ABSTAIN_REASON_TIMED_OUT", "failure": "the author did not answer",
            },
        ],
    },
    "simulation": {
        "task": {"name": "Shell", "description": "act as a shell", "kind": "SIMULATION_KIND_STATEFUL"},
        "utterances": [
            {"speaker": "SPEAKER_USER", "text": "act as a shell"},
            {"speaker": "SPEAKER_SIMULATOR", "text": "ready"},
            {"speaker": "SPEAKER_USER", "text": "count the files", "strategy": "new-request"},
            {"speaker": "SPEAKER_SIMULATOR", "text": "three"},
        ],
        "turnCount": 2, "challengingTurn": 2, "challengeJudge": "finder",
        "scripts": [{"subset": "SCRIPT_SUBSET_FIRST_CHALLENGE", "turn": 2}],
    },
}  # fmt: skip


def sample(kind: str, index: int = 0) -> RunSample:
    """A sample of a kind, as RunSample names its result."""
    return ParseDict({"index": index, "state": "SAMPLE_STATE_SUCCEEDED", kind: RESULTS[kind]}, RunSample())


def summarized(samples: Sequence[RunSample]) -> Summary:
    """The summary of samples that a report shows, by a gateway that is started for it."""

    async def summarize() -> Summary:
        clustered = any(one.pair.roles.HasField("clustering") for one in samples)
        roles = ("alignment", "graph", *(("roles",) if clustered else ()))
        async with gateway(None, roles, quiet=True) as address, DramaturgClient(address) as client:
            return await client.summarize(samples, find_groupings(samples).options())

    # The tests of the page drive a browser, beside which a thread runs no other event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(summarize())).result()


def page(samples: Sequence[RunSample], limit: int = 500, heading: Heading | None = None) -> str:
    """The report of samples."""
    heading = heading or Heading("A title")
    return "".join(render(heading, summarized(samples), samples, limit))


def shown_samples(html: str) -> list[dict[str, Any]]:
    """The samples in the blocks of a page, as its script reads them."""
    blocks = re.findall(r'<script type="text/plain" class="block">([^<]*)</script>', html)
    lines = [
        line for block in blocks for line in zlib.decompress(base64.b64decode(block)).decode().split("\n")
    ]
    return [json.loads(line) for line in lines]


def shown_index(html: str) -> dict[str, Any]:
    """The index of a page."""
    found = re.search(r'<script type="application/json" id="index">(.*?)</script>', html, re.DOTALL)
    assert found
    index: dict[str, Any] = json.loads(found[1])
    return index
