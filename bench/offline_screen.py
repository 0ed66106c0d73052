"""How often the offline agents are right: what ``services/agents/offline/screens.py`` states.

Reads CoScript's test part beside the checkout (or in the folder that DRAMATURG_DATA names). Scripts for goals
of odd number fit the constraint model; those of even number measure it. ``--json`` prints one object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dramaturg.datasets.json_lines import json_array_or_lines
from services.agents.offline import screens
from services.agents.offline.material import Embedded, Floats
from services.agents.offline.screens import (
    Features,
    LogisticModel,
    measure,
    repeated_meanings,
    repeated_wordings,
    undecidable_word,
)
from services.embedding.embedder import plan_batches
from services.embedding.light import LightEncoder
from services.embedding.weights import locate

ROOT = Path(__file__).resolve().parent.parent
POOL = 5
"""The fewest scripts of one abstract goal that serve as a pool."""


@dataclass(frozen=True)
class Row:
    """One script of CoScript."""

    goal: str
    abstract_goal: str
    constraint: str
    category: str
    steps: tuple[str, ...]

    @property
    def script(self) -> str:
        """All steps as one text."""
        return "\n".join(self.steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goals", type=int, default=None, help="how many abstract goals to read (all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    data = Path(os.environ.get("DRAMATURG_DATA", ROOT.parent / "shared" / "data"))
    file = data / "coscript" / "test_data.json"
    if not file.is_file():
        print(f"skipped: no {file}")
        return 0
    results = evaluate(read(file, arguments.goals))
    if arguments.json:
        json.dump(results, sys.stdout)
        print()
    else:
        for name, value in results.items():
            print(f"{name:<55} {value:8.3f}")
    return 0


def read(file: Path, goals: int | None = None) -> list[Row]:
    """The rows of the first ``goals`` abstract goals."""
    rows = []
    for _, row in json_array_or_lines(file):
        steps = tuple(step.split(". ", 1)[-1] if step[:1].isdigit() else step for step in row["Script"])
        rows.append(
            Row(row["Specific Goal"], row["Abstract Goal"], row["Constraint"], row["Category"], steps)
        )
    wanted = set(sorted({row.abstract_goal for row in rows})[:goals])
    return [row for row in rows if row.abstract_goal in wanted]


def evaluate(rows: Sequence[Row]) -> dict[str, float]:
    """Every figure by its name."""
    vectors = embed(rows)
    groups = defaultdict(list)
    for row in rows:
        groups[row.abstract_goal].append(row)
    pools = [group for group in groups.values() if len(group) >= POOL]
    return {
        "scripts": float(len(rows)),
        **duplicates(rows, vectors),
        **topics(rows, groups, vectors),
        **backing(rows, pools, vectors),
        **orders(pools, vectors),
        **constraints(groups, vectors),
    }


def embed(rows: Sequence[Row]) -> dict[str, Floats]:
    """The vectors of all texts."""
    texts = sorted({text for row in rows for text in (*row.steps, row.script, row.goal, row.constraint)})
    encoder = LightEncoder(locate(None))
    prepared = encoder.prepare(texts)
    vectors: dict[str, Floats] = {}
    for batch in plan_batches([text.length for text in prepared], 2048):
        encoded = encoder.encode([prepared[index].input for index in batch])
        for index, vector in zip(batch, encoded, strict=True):
            vectors[texts[index]] = vector
    return vectors


def duplicates(rows: Sequence[Row], vectors: dict[str, Floats]) -> dict[str, float]:
    """How many scripts, as they are, are said to repeat a step."""
    embedded = Embedded(vectors, frozenset(), "")
    flagged = defaultdict(list)
    for row in rows:
        wordings, meanings = repeated_wordings(row.steps), repeated_meanings(row.steps, embedded)
        certain = any(not pair.doubt for pair in meanings)
        flagged["duplicate, same wording"].append(bool(wordings))
        flagged["duplicate, same meaning alone"].append(certain and not wordings)
        flagged["duplicate, in doubt"].append(bool(meanings) and not certain and not wordings)
    return {name: float(np.mean(values)) for name, values in flagged.items()}


def topics(rows: Sequence[Row], groups: dict[str, list[Row]], vectors: dict[str, Floats]) -> dict[str, float]:
    """How many scripts are off topic under their own goal, and under others'."""
    generator = random.Random(0)
    by_category = defaultdict(list)
    for row in rows:
        by_category[row.category].append(row)
    flagged = defaultdict(list)

    def screen(name: str, goal: Row, script: Row, pool: Sequence[Row] = ()) -> None:
        dimension = len(vectors[goal.goal])
        whole = np.array([vectors[row.script] for row in pool], dtype=np.float32).reshape(-1, dimension)
        found = screens.screen_topic(vectors[goal.goal], vectors[script.script], whole)
        flagged[f"off topic, {name}"].append(found.off_topic)

    for row in rows:
        screen("own goal", row, row)
        stranger = generator.choice(rows)
        if stranger.category != row.category:
            screen("goal of another category", stranger, row)
        neighbour = generator.choice(by_category[row.category])
        related = neighbour.abstract_goal == row.abstract_goal
        if not related:
            screen("goal of the same category", neighbour, row)
        siblings = [other for other in groups[row.abstract_goal] if other is not row]
        if len(siblings) >= POOL:
            screen("own goal, with pool", row, row, siblings)
            if not related:
                screen("script of the same category, with pool", row, neighbour, siblings)
    return {name: float(np.mean(values)) for name, values in flagged.items()}


def each_in_pool(
    pools: Sequence[Sequence[Row]], vectors: dict[str, Floats]
) -> Iterator[tuple[Floats, list[Floats]]]:
    """Each script of each pool, and the others."""
    for group in pools:
        scripts = [np.stack([vectors[step] for step in row.steps]) for row in group]
        for index, script in enumerate(scripts):
            yield script, [*scripts[:index], *scripts[index + 1 :]]


def backing(
    rows: Sequence[Row], pools: Sequence[Sequence[Row]], vectors: dict[str, Floats]
) -> dict[str, float]:
    """The number of scripts with an isolated step, originally and with a foreign step added."""
    generator = random.Random(0)
    clean, planted = [], []
    for script, others in each_in_pool(pools, vectors):
        clean.append(screens.screen_support(script, others).unsupported)
        foreign = vectors[generator.choice(generator.choice(rows).steps)]
        screen = screens.screen_support(np.concatenate([script, foreign[None]]), others)
        planted.append(screen.unsupported and screen.weakest == len(script))
    return {"redundant, as it is": float(np.mean(clean)), "redundant, foreign step": float(np.mean(planted))}


def orders(pools: Sequence[Sequence[Row]], vectors: dict[str, Floats]) -> dict[str, float]:
    """How many scripts are in disorder, as they are, shuffled and reversed."""
    generator = np.random.default_rng(0)
    flagged = defaultdict(list)
    for script, pool in each_in_pool(pools, vectors):
        others = [other for other in pool if len(other) >= screens.ORDER_MIN_STEPS]
        if len(script) < screens.ORDER_MIN_STEPS or len(others) < 3:
            continue
        flagged["order, as it is"].append(screens.screen_order(script, others).disordered)
        flagged["order, reversed"].append(screens.screen_order(script[::-1], others).disordered)
        shuffled = generator.permutation(script)
        flagged["order, shuffled"].append(screens.screen_order(shuffled, others).disordered)
    return {name: float(np.mean(values)) for name, values in flagged.items()}


def constraints(groups: dict[str, list[Row]], vectors: dict[str, Floats]) -> dict[str, float]:
    """Fits the model on goals of odd number and measures the one in use on those of even number."""
    examples: dict[tuple[bool, bool], list[tuple[Features, bool, float]]] = defaultdict(list)
    for number, goal in enumerate(sorted(groups)):
        for row, other in itertools.product(groups[goal], repeat=2):
            siblings = [sib for sib in groups[goal] if sib.constraint.casefold() != row.constraint.casefold()]
            if not siblings or (other is not row and other not in siblings):
                continue
            features = measure(
                other.constraint,
                vectors[other.constraint],
                row.script,
                vectors[row.script],
                np.stack([vectors[step] for step in row.steps]),
            )
            weight = 1.0 if other is row else 1 / len(siblings)
            plain = undecidable_word(other.constraint) is None
            examples[number % 2 == 1, plain].append((features, other is row, weight))
    fitted = fit(examples[True, True])
    return {
        "constraint model, intercept": fitted.intercept,
        "constraint model, nearest step": fitted.nearest_step,
        "constraint model, whole script": fitted.whole_script,
        "constraint model, keywords": fitted.keywords,
        **{f"plain constraint, {name}": value for name, value in answers(examples[False, True]).items()},
        **{f"other constraint, {name}": value for name, value in answers(examples[False, False]).items()},
    }


def fit(examples: Sequence[tuple[Features, bool, float]]) -> LogisticModel:
    """Logistic regression with a trace of ridge."""
    inputs = np.array([[1, f.nearest_step, f.whole_script, f.keywords] for f, _, _ in examples])
    labels = np.array([label for _, label, _ in examples], dtype=float)
    weights = np.array([weight for _, _, weight in examples])

    def loss(parameters: NDArray[np.float64]) -> float:
        logits = inputs @ parameters
        return float(weights @ (np.logaddexp(0, logits) - labels * logits) + 5e-4 * parameters @ parameters)

    return LogisticModel(*(float(value) for value in minimize(loss, np.zeros(4)).x))


def answers(examples: Sequence[tuple[Features, bool, float]]) -> dict[str, float]:
    """What share is answered, and what share of that rightly; own and other constraints equally often."""
    total = answered = right = 0.0
    for features, own, weight in examples:
        probability = screens.CONSTRAINT.probability(features)
        total += weight
        if max(probability, 1 - probability) >= screens.CONSTRAINT_CONFIDENCE:
            answered += weight
            right += weight * ((probability > 0.5) == own)
    return {
        "answered": answered / total,
        "right of the answered": right / answered if answered else float("nan"),
    }


if __name__ == "__main__":
    sys.exit(main())
