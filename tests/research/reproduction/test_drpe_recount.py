"""DRPE's correlations, counted again from the paper's equations over votes that differ by role and order."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from scipy import stats

from tests.support.drawn import drawn_lines
from tests.support.openai_server import Answer, Body
from tests.support.readers import entries, prompt_of, shown
from tests.support.reproductions import read_csv, released_pairs, reproduce_with

pytestmark = [pytest.mark.data, pytest.mark.slow, pytest.mark.timeout(540)]

LIMIT = 20
OBJECTIVE = ("General public", "Critic", "News author")
MANUAL = ("Student", "Business person", "Politician")
READERS = {
    "Truck driver": "carries freight through the night and asks what changes on the roads",
    "Cellist": "plays chamber music and listens for rhythm in prose",
    "Oncologist": "treats tumours in a hospital and weighs evidence",
    "Football fan": "never misses a match and wants names and scores",
    "Tax lawyer": "reads statutes for a living and distrusts vague terms",
    "Beekeeper": "tends hives in spring and follows the weather",
}


def draw(*parts: str) -> int:
    return hashlib.sha256("/".join(parts).encode()).digest()[0]


def name_of(role: str) -> str:
    return role.partition(":")[0]


def prefers(role: str, texts: Sequence[str]) -> str:
    """The text that a role votes for, in either order: three times in four the longer one."""
    longer, other = sorted(texts, key=len, reverse=True)
    return other if draw(role, longer, other) < 64 else longer


def confidence(role: str, texts: Sequence[str]) -> float:
    return 0.2 + draw("confidence", role, *sorted(texts)) / 320


def is_biased(texts: Sequence[str]) -> bool:
    """Whether the judge without a role votes for the text shown first."""
    return draw("biased", *sorted(texts)) < 64


def respond(better: Collection[str], body: Body) -> Body | Answer:
    """Answers for roles, their votes, and the judge without a role, which knows the better texts."""
    seen_prompt = prompt_of(body)
    properties = body["response_format"]["json_schema"]["schema"]["properties"]
    if not properties.keys() & {"vote", "role_1"}:
        wanted = {kind: int(number) for number, kind in re.findall(r"(\d+) (coarse|fine)", seen_prompt)}
        readers = iter(READERS.items())
        return {
            kind: [{"type": name, "description": f"{name} {text}."} for name, text in islice(readers, count)]
            for kind, count in wanted.items()
        }
    seen = shown(body)
    texts = (seen.text_1, seen.text_2)
    if not seen.roles:
        return {"reason": "So.", "vote": "1" if is_biased(texts) or seen.text_1 in better else "2"}
    answer = entries(seen, lambda _, role: "1" if prefers(name_of(role), texts) == seen.text_1 else "2")
    tokens = [("{", 0.0)]
    for number, (role, (key, entry)) in enumerate(zip(seen.roles, answer.items(), strict=True)):
        tokens.append((f"{', ' if number else ''}{json.dumps(key)}: ", -0.01))
        own = math.log(confidence(name_of(role), texts))
        tokens += [(token, own) for token in re.findall(r"\s*\w+|\W", json.dumps(entry))]
    return Answer(json.dumps(answer), tokens=[*tokens, ("}", 0.0)])


def shares(roles: Sequence[str], pairs: Sequence[tuple[str, str, bool]]) -> list[float]:
    """The share of votes for the first text (equation 1)."""
    return [sum(prefers(role, (one, other)) == one for role in roles) / len(roles) for one, other, _ in pairs]


def scores(roles: Sequence[str], pairs: Sequence[tuple[str, str, bool]]) -> list[float]:
    """The DRPEScore of the first text less that of the second (equation 4)."""
    return [
        sum(
            confidence(role, (one, other)) * (1 if prefers(role, (one, other)) == one else -1)
            for role in roles
        )
        for one, other, _ in pairs
    ]


def williams(human: Sequence[float], first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Williams' t for two correlations with the same variable, and its two-sided p (Graham, Baldwin 2014)."""
    n = len(human)
    r12, r13, r23 = (
        float(stats.pearsonr(one, other)[0])
        for one, other in ((human, first), (human, second), (first, second))
    )
    k = 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23
    under = 2 * k * (n - 1) / (n - 3) + (r12 + r13) ** 2 / 4 * (1 - r23) ** 3
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / under)
    return t, 2 * float(stats.t.sf(abs(t), n - 3))


def test_correlations_follow_from_the_papers_equations(data_dir: Path, tmp_path: Path) -> None:
    everything = released_pairs(data_dir / "drpe" / "cnn_human.json")
    pairs = [everything[index * len(everything) // LIMIT] for index in range(LIMIT)]
    human = [float(first) for *_, first in pairs]
    better = {one if first else other for one, other, first in pairs}
    finished, _ = reproduce_with(
        partial(respond, better), "drpe", data_dir, tmp_path / "out", "--model", "a", "--limit", str(LIMIT)
    )
    assert finished.code == 0, finished.err
    found = {(row["Model"], row["Method"]): row for row in read_csv(tmp_path / "out" / "table-1-methods.csv")}
    readers = list(READERS)
    methods = {f"roles k={count}": [*OBJECTIVE, *readers[:count]] for count in (0, 2, 4, 5, 6)}
    methods["fixed-roles"] = [*MANUAL, *OBJECTIVE]
    for method, roles in methods.items():
        row, support = found["CNN, a", method], shares(roles, pairs)
        assert row["Roles"] == ("" if method == "fixed-roles" else str(len(roles))), method
        for column, measure in (
            ("Pearson", stats.pearsonr),
            ("Spearman", stats.spearmanr),
            ("Kendall", stats.kendalltau),
        ):
            assert float(row[column]) == pytest.approx(measure(support, human)[0], abs=1e-9), (method, column)
        right = [share != 0.5 and (share > 0.5) == first for share, first in zip(support, human, strict=True)]
        assert float(row["Accuracy"]) == pytest.approx(sum(right) / LIMIT), method
        assert (float(row["First shown"]), float(row["Orders differ"])) == (0.5, 0), method
        if len(roles) % 2:
            longer = [
                (share > 0.5) == (len(one) > len(other))
                for share, (one, other, _) in zip(support, pairs, strict=True)
            ]
            assert float(row["Longer"]) == pytest.approx(sum(longer) / LIMIT), method
    # The votes of the judge without a role are a tie where the orders disagree; none has a confidence.
    biased = [is_biased((one, other)) for one, other, _ in pairs]
    alone = [0.5 if tied else first for tied, first in zip(biased, human, strict=True)]
    row = found["CNN, a", "llm"]
    assert 0 < sum(biased) < LIMIT
    assert ("CNN, a", "llm (DRPEScore)") not in found
    assert float(row["Pearson"]) == pytest.approx(stats.pearsonr(alone, human)[0], abs=1e-9)
    assert float(row["Accuracy"]) == pytest.approx(1 - sum(biased) / LIMIT)
    assert float(row["Orders differ"]) == pytest.approx(sum(biased) / LIMIT)
    assert float(row["First shown"]) == pytest.approx(0.5 + sum(biased) / LIMIT / 2)
    for method in ("roles k=0", "roles k=4", "roles k=6"):
        row = found["CNN, a", method]
        t, p = williams(human, shares(methods[method], pairs), alone)
        assert (row["Williams: baseline"], row["Williams: n"]) == ("llm", str(LIMIT))
        assert float(row["Williams: t"]) == pytest.approx(t, abs=1e-6)
        assert float(row["Williams: p"]) == pytest.approx(p, abs=1e-6)
    # Table 1 has the scores of equation 4, which each vote's confidence makes.
    row = read_csv(tmp_path / "out" / "table-1.csv")[0]
    for column, roles in (("MDRPE", methods["fixed-roles"]), ("DRPE", methods["roles k=5"])):
        assert float(row[column]) == pytest.approx(stats.pearsonr(scores(roles, pairs), human)[0], abs=1e-9)
    # Figure 7: the scores by the number of subjective roles; ManualDRPE has three at most.
    points = (
        [[*OBJECTIVE, *readers[:count]] for count in (0, 2, 4, 6)],
        [[*MANUAL[:count], *OBJECTIVE] for count in (0, 2, 3)],
    )
    for line, sets in zip(drawn_lines(tmp_path / "out" / "figure-7.svg"), points, strict=True):
        heights = [stats.pearsonr(scores(roles, pairs), human)[0] for roles in sets]
        assert line == pytest.approx(heights, abs=1e-3)
    expected = stats.pearsonr(alone, human)[0]
    assert float(row["LLM"]) == pytest.approx(expected, abs=1e-9)
