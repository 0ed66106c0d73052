"""Counts DRPE again from a study that this module writes and the answers of a scripted judge alone."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scipy import stats

from tests.support.drawn import drawn_lines
from tests.support.openai_server import Answer, Body
from tests.support.recounts import check_mean, check_share, draw, shown
from tests.support.reproductions import read_csv, released_pairs, reproduce_with

pytestmark = pytest.mark.timeout(540)

SYSTEMS = ("brio", "gpt3", "t0")
WORDS = [
    *("harbour", "storm", "minister", "vote", "budget", "river", "school", "teacher", "strike", "hospital"),
    *("rocket", "engine", "football", "referee", "court", "judge", "prison", "forest", "fire", "museum"),
    *("painting", "market", "price", "farmer", "drought", "village", "bridge", "train"),
]
READERS = (
    ("Nurse", "Works nights on a ward and reads about health in breaks."),
    ("Truck driver", "Listens to the news on the road and wants plain facts."),
    ("Lawyer", "Studies court cases and looks for exact wording."),
    ("Teenage gamer", "Knows nothing of politics and is easily bored."),
    ("Retired farmer", "Thinks of weather and harvests, and distrusts cities."),
    ("Football fan", "Supports a local club and skips all that is no sport."),
)


def study(kind: str, size: int) -> dict[str, Any]:
    """A human study in the released form."""

    def article(number: int) -> dict[str, Any]:
        words = [WORDS[draw(kind, number, place) % len(WORDS)] for place in range(60)]
        made: dict[str, Any] = {"article": f"{kind} {number}. {' '.join(words)}", "annotators": []}
        for person in range(3):
            liked = {one: draw(kind, number, one, person) - 300 * place for place, one in enumerate(SYSTEMS)}
            order = sorted(SYSTEMS, key=lambda system: -liked[system])
            several = 1 + (draw(kind, number, person) < 100)
            made["annotators"].append({"best_summary": order[:several], "worst_summary": order[-1:]})
        for place, system in enumerate(SYSTEMS):
            shorter = words[place :: 4 + place][: 4 + draw(kind, number, system) % 9]
            made[system] = {"text": f"Summary {kind} {number} {system}: {' '.join(shorter)}"}
        return made

    return {str(number): article(number) for number in range(size)}


class Ballot(NamedTuple):
    """A vote of a role."""

    text: str
    """The text that it prefers."""
    first: str
    """The text that was shown first."""
    confidence: float


class Judge:
    """Names readers and votes, and keeps every ballot.

    Some answers of a method that is unsure have no log-probabilities.
    """

    def __init__(self, unsure: str = "") -> None:
        self.unsure = unsure
        self.cautioned = set[tuple[str, ...]]()
        """The requests for votes with a caution."""
        self.asked = set[frozenset[str]]()
        """The roles that were asked together."""
        self.usable = Counter[tuple[str, ...]]()
        """The requests with an answer of use."""
        self.ballots: dict[tuple[str, frozenset[str]], dict[str, dict[str, Ballot | None]]] = {}
        """By method and texts, then by role and the text shown first; None: the answer cannot be read."""

    def __call__(self, body: Body) -> Answer:
        answer = self._answer(body)
        self.usable[tuple(shown(body))] += answer.text.startswith("{")
        return answer

    def _answer(self, body: Body) -> Answer:
        prompt = shown(body)[1]
        name = body["response_format"]["json_schema"]["name"]
        if name == "roles":
            return Answer(json.dumps(self._readers(prompt)))
        texts = re.findall(r"\[BEGIN text \d \w+\]\n(.*)\n\[END text", prompt)
        roles = re.findall(r"^Role \d+: (.*?): ", prompt, re.MULTILINE) if name == "votes" else ["llm"]
        method = self.method(roles)
        self.asked.add(frozenset(roles))
        if any("nor their length is a reason" in text for text in shown(body)):
            self.cautioned.add(tuple(shown(body)[:2]))  # What is asked again has a further message.
        kept = self.ballots.setdefault((method, frozenset(texts)), {role: {} for role in roles})
        if draw("unreadable", method, *texts) < 15:
            for role in roles:
                kept[role][texts[0]] = None
            return Answer("Both are fine.")
        parts = []
        for number, role in enumerate(roles, start=1):
            vote, logprob = self.vote(role, texts)
            kept[role][texts[0]] = Ballot(texts[vote - 1], texts[0], math.exp(logprob))
            said = json.dumps({"reason": "It reads better.", "vote": str(vote)})
            parts.append((said if name == "vote" else f'"role_{number}": {said}', logprob))
        tokens = [] if name == "vote" else [("{", -0.3)]
        for number, (said, logprob) in enumerate(parts):
            tokens += [(", ", -0.3)] if number else []
            tokens += [(token, logprob) for token in re.findall(r"\s*\S+", said)]
        tokens += [] if name == "vote" else [("}", -0.3)]
        said = "".join(token for token, _ in tokens)
        return Answer(said, tokens=[] if method == self.unsure and draw("sure", *texts) < 200 else tokens)

    @staticmethod
    def _readers(prompt: str) -> dict[str, Any]:
        found = re.findall(r"Readers to name: (\d) coarse and (\d) fine", prompt)
        if not found:  # A request for those that are missing.
            return {"coarse": [], "fine": []}
        coarse, fine = map(int, found[0])
        asked = coarse + fine
        readers = [{"type": f"{kind} {asked}", "description": said} for kind, said in READERS]
        number = int(re.findall(r"(?:cnn|bbc) (\d+)\.", prompt)[0])
        if asked == 6 and number % 4 == 0:
            fine -= 1
        if asked == 6 and number % 4 == 1:
            readers[1] = readers[0]
        return {"coarse": readers[:coarse], "fine": readers[coarse : coarse + fine]}

    @staticmethod
    def method(roles: Sequence[str]) -> str:
        """The method, by the readers that vote: generated ones bear their number."""
        if roles == ["llm"]:
            return "llm"
        generated = {role[-1] for role in roles if role[-1].isdigit()}
        if generated:
            return f"roles k={generated.pop()}"
        return {3: "roles k=0", 5: "manual k=2", 6: "fixed-roles"}[len(roles)]

    @staticmethod
    def vote(role: str, texts: Sequence[str]) -> tuple[int, float]:
        """The number of the text that a role votes for, and the log-probability of each of its tokens."""
        key = (role, *sorted(texts))
        if draw("biased", *key) < 120:
            return 1, -0.5
        liked = [300 * (" brio:" in one) - 200 * (" t0:" in one) + draw(one, *key) for one in texts]
        return 1 + liked.index(max(liked)), -draw("sure", *key) / 1000


def supports(
    study: Sequence[tuple[str, str, bool]], judge: Judge, method: str, *, scores: bool
) -> list[float | None]:
    """By pair the support of the first text: its share of votes, or its score less that of the second.

    A role's vote counts for a text if it is for this text in every order shown; else it is for neither. A
    pair of which an answer is missing has no support.
    """
    found = list[float | None]()
    for first, second, _ in study:
        roles = judge.ballots[method, frozenset((first, second))].values()
        ballots = [[one for one in shown.values() if one] for shown in roles]
        if any(None in shown.values() for shown in roles):
            found.append(None)
            continue
        total = 0.0
        for cast in ballots:
            signs = {1 if one.text == first else -1 for one in cast}
            sign = signs.pop() if len(signs) == 1 else 0
            total += sign * statistics.fmean(one.confidence for one in cast) if scores else (1 + sign) / 2
        found.append(total if scores else total / len(ballots))
    return found


METHODS = [("m", f"roles k={k}") for k in (0, 2, 4, 5, 6)]
METHODS += [("m", "llm"), ("m", "fixed-roles"), ("m, manual", "roles k=2")]
CORRELATIONS: dict[str, Callable[..., Any]] = {
    "Pearson": stats.pearsonr,
    "Spearman": stats.spearmanr,
    "Kendall": stats.kendalltau,
}


def williams(ours: Sequence[float], theirs: Sequence[float], human: Sequence[float]) -> tuple[float, float]:
    """Williams' t of two dependent absolute correlations with people, as Graham and Baldwin 2014, and p."""
    n = len(human)
    rows = [list(ours), list(theirs), list(human)]
    for row in rows[:2]:
        sign = math.copysign(1, stats.pearsonr(row, human).statistic)
        row[:] = [sign * one for one in row]
    r12, r13, r23 = (
        stats.pearsonr(one, other).statistic for one, other in ((rows[0], human), (rows[1], human), rows[:2])
    )
    k = 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23
    low = math.sqrt(2 * k * (n - 1) / (n - 3) + (r12 + r13) ** 2 / 4 * (1 - r23) ** 3)
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23)) / low
    return t, 2 * float(stats.t.sf(abs(t), n - 3))


class Reproduced:
    """A reproduction."""

    def __init__(self, folder: Path, judge: Judge, *options: str) -> None:
        self.out = folder / "out"
        self.judge = judge
        self.orders = 1 if "--single-order" in options else 2
        self.studies = {}
        for name, kind, size in (("CNN", "cnn", 36), ("XSum", "bbc", 20)):
            (folder / f"{kind}_human.json").write_text(json.dumps(study(kind, size)))
            self.studies[name] = released_pairs(folder / f"{kind}_human.json")
        finished, _ = reproduce_with(judge, "drpe", folder, self.out, "--model", "m", *options)
        assert finished.code in {0, 4}, finished.err
        assert max(judge.usable.values()) == 1
        rows = read_csv(self.out / "table-1-methods.csv")
        self.methods = {(row["Model"], row["Method"]): row for row in rows}


@pytest.fixture(scope="module", params=["both orders", pytest.param("single order", marks=pytest.mark.slow)])
def reproduced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """A reproduction of both studies. In a single order some answers have no log-probabilities."""
    folder = tmp_path_factory.mktemp("drpe")
    if request.param == "both orders":
        return Reproduced(folder, Judge(), "--ablations")
    return Reproduced(folder, Judge(unsure="fixed-roles"), "--single-order")


def test_every_method_has_its_correlations_accuracy_and_bias(reproduced: Reproduced) -> None:
    for (label, pairs), (runs, method) in product(reproduced.studies.items(), METHODS):
        human = [float(first) for _, _, first in pairs]
        judge, name = reproduced.judge, method if runs == "m" else "manual k=2"
        unsure = name == "fixed-roles" and judge.unsure
        scored = f"{method} (DRPEScore)"
        assert ((f"{label}, {runs}", scored) in reproduced.methods) == (not unsure)
        for row_name, scores in ((method, False), (scored, True))[: 1 if unsure else 2]:
            row = reproduced.methods[f"{label}, {runs}", row_name]
            support = supports(pairs, judge, name, scores=scores)
            known = [(x, y) for x, y in zip(support, human, strict=True) if x is not None]
            xs, ys = zip(*known, strict=True)
            for column, correlate in CORRELATIONS.items():
                assert float(row[column]) == pytest.approx(correlate(xs, ys).statistic), (row_name, column)
                assert (row[f"{column} (judged)"], row[f"{column} (of)"]) == (str(len(xs)), str(len(pairs)))
            middle = 0 if scores else 0.5
            check_share(
                row, "Accuracy", sum((x - middle) * (y - 0.5) > 0 for x, y in known), len(xs), len(pairs)
            )
            chosen = [
                ((first if x > middle else second), max(first, second, key=len))
                for x, (first, second, _) in zip(support, pairs, strict=True)
                if x not in {None, middle} and len(first) != len(second)
            ]
            check_mean(row, "Longer", [one == other for one, other in chosen], (0, 1))
            if row["Williams: t"]:
                check_williams(row, pairs, judge, support)
        # The votes on one pair are not independent.
        roles = [
            (number, shown)
            for number, (first, second, _) in enumerate(pairs)
            for shown in judge.ballots[name, frozenset((first, second))].values()
        ]
        cast = [(number, one) for number, shown in roles for one in shown.values() if one]
        row = reproduced.methods[f"{label}, {runs}", method]
        numbers = [number for number, _ in cast]
        check_mean(row, "First shown", [one.text == one.first for _, one in cast], (0, 1), clusters=numbers)
        if reproduced.orders == 2:
            both = [(number, [one.text for one in shown.values() if one]) for number, shown in roles]
            differ = [(number, one[0] != one[1]) for number, one in both if len(one) == 2]
            check_mean(
                row, "Orders differ", [one for _, one in differ], (0, 1), clusters=[n for n, _ in differ]
            )


def check_williams(
    row: Mapping[str, str],
    pairs: Sequence[tuple[str, str, bool]],
    judge: Judge,
    support: Sequence[float | None],
) -> None:
    """Asserts that a method is compared with the best baseline, over the pairs of both."""
    human = [float(first) for _, _, first in pairs]
    baselines: dict[str, Sequence[float | None]] = {
        one: supports(pairs, judge, one, scores=False) for one in ("llm", "fixed-roles")
    }
    if "manual" in row["Model"]:
        baselines = {}
    baselines["longer"] = [0.5 * (1 + (len(one) > len(two)) - (len(one) < len(two))) for one, two, _ in pairs]
    best = {
        name: abs(
            stats.pearsonr(
                *zip(*((x, y) for x, y in zip(base, human, strict=True) if x is not None), strict=True)
            ).statistic
        )
        for name, base in baselines.items()
    }
    assert row["Williams: baseline"] == max(best, key=lambda name: best[name])
    base = baselines[row["Williams: baseline"]]
    shared = [one for one in zip(support, base, human, strict=True) if None not in one]
    assert row["Williams: n"] == str(len(shared))
    told = (float(row["Williams: t"]), float(row["Williams: p"]))
    assert told == pytest.approx(williams(*zip(*shared, strict=True)))


def test_a_caution_is_a_variant_of_its_own(reproduced: Reproduced) -> None:
    """Of the baselines and five roles. The paper has none."""
    pairs = sum(map(len, reproduced.studies.values()))
    cautioned = {method for model, method in reproduced.methods if model == "CNN, m, cautioned"}
    if reproduced.orders == 1:
        assert not reproduced.judge.cautioned
        assert not cautioned
    else:
        assert {"llm", "fixed-roles", "roles k=5"} <= cautioned
        assert len(reproduced.judge.cautioned) == 2 * 3 * pairs


def test_all_role_sets_have_the_objective_roles(reproduced: Reproduced) -> None:
    asked = reproduced.judge.asked - {frozenset({"llm"})}
    (objective,) = (
        roles for roles in asked if not any(one[-1].isdigit() for one in roles) and len(roles) == 3
    )
    assert all(objective <= roles for roles in asked)
    for ballots in reproduced.judge.ballots.values():
        assert {len(shown) for shown in ballots.values()} == {reproduced.orders}


def test_table_1_and_figure_7_are_of_these_methods(reproduced: Reproduced) -> None:
    files = [file for file in reproduced.out.iterdir() if re.match("table|section|figure", file.name)]
    names = {file.stem.removesuffix("-xsum") for file in files}
    assert names == {"table-1", "table-1-methods", "section-4-1", "figure-7"}
    table = {row["Metrics"]: row for row in read_csv(reproduced.out / "table-1.csv")}
    assert list(table) == ["CNN, m", "XSum, m", "CNN (paper)", "XSum (paper)"]
    assert (table["CNN, m"]["LLM (paper)"], table["CNN, m"]["BertScore (paper)"]) == ("0.58", "0.55")
    assert table["XSum, m"]["DRPE (paper)"] == "0.87"
    assert [table[f"{label} (paper)"]["DRPE"] for label in ("CNN", "XSum")] == ["0.9", "0.87"]
    assert "Table 1 and Figure 7, XSum" not in (reproduced.out / "README.md").read_text()
    rows = reproduced.methods
    page = (reproduced.out / "table-1.md").read_text()
    # Scores of equation 4 where all answers have log-probabilities. A figure has one measure.
    unsure = reproduced.judge.unsure
    for label, figure in (("CNN", "figure-7"), ("XSum", "figure-7-xsum")):
        columns = {"BertScore": (label, "bertscore")}
        for column, method in (("LLM", "llm"), ("MDRPE", "fixed-roles"), ("DRPE", "roles k=5")):
            columns[column] = (f"{label}, m", method if method == unsure else f"{method} (DRPEScore)")
        for (column, key), part in product(
            columns.items(), ("", " (lower)", " (upper)", " (judged)", " (of)")
        ):
            assert table[f"{label}, m"][column + part] == rows[key][f"Pearson{part}"] != ""
        assert {"rouge-l", "longer", "meteor"} <= {name for model, name in rows if model == label}
        (shown_row,) = re.findall(rf"^\| {label}, m \|.*$", page, re.MULTILINE)
        marks = ["\\*" in cell for cell in shown_row.strip("| ").split(" | ")]
        assert marks == [False, False, True, not unsure, True]
        drpe = [("m", f"roles k={k}") for k in (0, 2, 4, 6)]
        manual = [("m", "roles k=0"), ("m, manual", "roles k=2"), ("m", "fixed-roles")]
        measure = "" if unsure else " (DRPEScore)"
        for line, points in zip(drawn_lines(reproduced.out / f"{figure}.svg"), (drpe, manual), strict=True):
            heights = [float(rows[f"{label}, {run}", method + measure]["Pearson"]) for run, method in points]
            assert line == pytest.approx(heights, abs=1e-4)


def test_the_roles_that_voted_and_shortages_are_told(reproduced: Reproduced) -> None:
    page = (reproduced.out / "README.md").read_text()
    assert ("Models see this order alone." in page) == (reproduced.orders == 1)
    assert ("Models see both orders" in page) == (reproduced.orders == 2)
    for label, pairs in reproduced.studies.items():
        for k, asked in ((0, 3), (2, 5), (4, 7), (5, 8), (6, 9)):
            voted = {len(reproduced.judge.ballots[f"roles k={k}", frozenset(pair[:2])]) for pair in pairs}
            told = f"{min(voted)} to {max(voted)} of {asked}" if len(voted) > 1 else str(asked)
            assert reproduced.methods[f"{label}, m", f"roles k={k}"]["Roles"] == told
        short = sum(len(reproduced.judge.ballots["roles k=6", frozenset(pair[:2])]) == 8 for pair in pairs)
        assert short
        assert f"{label}, m: {short} pairs: 5 of 6 roles were generated." in page


def test_section_4_1_has_the_pairs_the_shares_and_the_agreement(reproduced: Reproduced) -> None:
    for label, kind, size, name in (
        ("CNN", "cnn", 36, "section-4-1"),
        ("XSum", "bbc", 20, "section-4-1-xsum"),
    ):
        rows = {row["Figure"]: row for row in read_csv(reproduced.out / f"{name}.csv")}
        assert rows["pairs"]["best"] == str(len(reproduced.studies[label]))
        annotators = [one["annotators"] for one in study(kind, size).values()]
        for column, choice in (("best", "best_summary"), ("worst", "worst_summary")):
            lists = [[frozenset(one[choice]) for one in people] for people in annotators]
            for system in SYSTEMS:
                twice = sum(sum(system in one for one in people) >= 2 for people in lists)
                told = float(rows[f"{system} chosen by two or more, in percent"][column])
                assert told == pytest.approx(100 * twice / size)
            within = statistics.fmean(
                masi(one, other) for people in lists for one, other in combinations(people, 2)
            )
            everyone = [one for people in lists for one in people]
            between = statistics.fmean(masi(one, other) for one, other in combinations(everyone, 2))
            assert float(rows["Krippendorff's alpha, MASI distance"][column]) == pytest.approx(
                1 - within / between
            )


def masi(one: frozenset[str], other: frozenset[str]) -> float:
    """The distance of two sets by Passonneau 2006."""
    same = 1 if one == other else 2 / 3 if one < other or other < one else 1 / 3 if one & other else 0
    return 1 - len(one & other) / len(one | other) * same


def test_overlap_metrics_are_those_of_the_words(reproduced: Reproduced) -> None:
    """The metrics compare each summary with its article."""
    for kind, size, label in (("cnn", 36, "CNN"), ("bbc", 20, "XSum")):
        articles = {
            one[system]["text"]: one["article"] for one in study(kind, size).values() for system in SYSTEMS
        }
        for n in (1, 2):
            row = reproduced.methods[label, f"rouge-{n}"]
            support = [
                rouge(first, articles[first], n) - rouge(second, articles[second], n)
                for first, second, _ in reproduced.studies[label]
            ]
            human = [float(first) for _, _, first in reproduced.studies[label]]
            assert float(row["Pearson"]) == pytest.approx(stats.pearsonr(support, human).statistic)


def rouge(summary: str, article: str, n: int) -> float:
    """F1 of the n-grams of words (Lin 2004). No two words of the study have one stem."""
    grams = []
    for text in (summary, article):
        words = re.findall(r"[a-z0-9]+", text.lower())
        grams.append(Counter(zip(*(words[place:] for place in range(n)), strict=False)))
    shared = (grams[0] & grams[1]).total()
    return 2 * shared / (grams[0].total() + grams[1].total())
