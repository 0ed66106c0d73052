"""A judge of known quality: what it says of an item depends on the truth, its rates and a seed alone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dramaturg.api.generation.v1 import generation_service_pb2 as generation
from dramaturg.judge.criteria import ABSEVAL
from tests.support.judges import all_pass

_MARK = re.compile(r"Mark (\w+)/(\w+)\.")


@dataclass(frozen=True)
class Rates:
    """How good a judge is on one criterion."""

    sensitivity: float
    """How often it fails what is to be failed."""
    specificity: float
    """How often it passes what is to be passed."""
    prevalence: float
    """How often there is something to be failed."""
    abstention: float = 0.05
    """How often it says nothing, whatever the truth."""

    @property
    def table(self) -> Mapping[tuple[bool, bool], float]:
        """The shares of items by truth and verdict, of those it answers; true is a pass."""
        bad, good = self.prevalence, 1 - self.prevalence
        return {
            (False, False): bad * self.sensitivity,
            (False, True): bad * (1 - self.sensitivity),
            (True, True): good * self.specificity,
            (True, False): good * (1 - self.specificity),
        }

    @property
    def accuracy(self) -> float:
        """The share of right answers, of those it gives."""
        return self.table[False, False] + self.table[True, True]


# Of every sort: good and bad judges, frequent and rare faults.
PLANTED: Mapping[str, Rates] = dict(
    zip(
        ABSEVAL,
        (
            Rates(0.90, 0.90, 0.50),
            Rates(0.80, 0.95, 0.30),
            Rates(0.95, 0.97, 0.20),
            Rates(0.70, 0.85, 0.25),
            Rates(0.60, 0.80, 0.40),
            Rates(0.85, 0.75, 0.35),
            Rates(0.75, 0.90, 0.30),
        ),
        strict=True,
    )
)
"""The rates of a judge, by criterion."""


@dataclass(frozen=True)
class PlantedJudge:
    """A judge whose truth and verdicts are drawn by a seed."""

    seed: int = 0

    def truth(self, item: str, criterion: str) -> bool:
        """Whether people pass the item."""
        return self._draw(item, criterion, "truth") >= PLANTED[criterion].prevalence

    def verdict(self, item: str, criterion: str) -> bool | None:
        """Whether the judge does; ``None``: it says nothing."""
        rates = PLANTED[criterion]
        if self._draw(item, criterion, "abstention") < rates.abstention:
            return None
        good = self.truth(item, criterion)
        right = self._draw(item, criterion, "verdict") < (rates.specificity if good else rates.sensitivity)
        return good if right else not good

    def respond(self, body: dict[str, Any]) -> str:
        """Answers a request of the script judge by the mark in the script, ``Mark TASK/CANDIDATE.``"""
        form, text = body["response_format"]["json_schema"], body["messages"][-1]["content"]
        request = generation.GenerateRequest(
            messages=[generation.Message(text=text)],
            json_format=generation.JsonFormat(name=form["name"], schema=json.dumps(form["schema"])),
        )
        answer = json.loads(all_pass(request).text)
        mark = _MARK.search(text)
        assert mark is not None
        for criterion in set(answer) & set(PLANTED):
            said = {True: "pass", False: "fail", None: "unsure"}[
                self.verdict("/".join(mark.groups()), criterion)
            ]
            part = answer[criterion]
            part["verdict"] = said
            for one in [*part.get("steps", []), *part.get("constraints", [])]:
                one["verdict"] = said
            if "findings" in part and said == "fail":
                members = form["schema"]["properties"][criterion]["properties"]["findings"]["items"][
                    "properties"
                ]
                values = {"steps": [1], "problem": "It is planted.", "missing_step": "A planted one."}
                part["findings"] = [{name: values[name] for name in members}]
        return json.dumps(answer)

    def _draw(self, *parts: str) -> float:
        digest = hashlib.blake2b("/".join((str(self.seed), *parts)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64
