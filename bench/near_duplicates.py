"""How alike the goals of a test set are, and so what ``dramaturg research tasks expand --near`` drops.

Reads CoScript's test part beside the checkout (or in the folder that DRAMATURG_DATA names) and compares the
goals of tasks that share the abstract goal and differ in the constraint, and those of different abstract
goals. It takes some minutes.
``--json`` prints one object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dramaturg.datasets.json_lines import json_array_or_lines
from services.embedding.embedder import plan_batches
from services.embedding.light import LightEncoder
from services.embedding.weights import locate

ROOT = Path(__file__).resolve().parent.parent
THRESHOLDS = (0.85, 0.9, 0.95, 0.97)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    file = (
        Path(os.environ.get("DRAMATURG_DATA", ROOT.parent / "shared" / "data"))
        / "coscript"
        / "test_data.json"
    )
    if not file.is_file():
        print(f"skipped: no {file}")
        return 0
    rows = [row for _, row in json_array_or_lines(file)]
    cosines = np.triu(measure([row["Specific Goal"] for row in rows]), 1)
    abstract, constraint = (np.array([row[name] for row in rows]) for name in ("Abstract Goal", "Constraint"))
    upper = np.triu(np.ones_like(cosines, dtype=bool), 1)
    same = abstract[:, None] == abstract
    siblings = cosines[upper & same & (constraint[:, None] != constraint)]
    strangers = cosines[upper & ~same]
    results = {
        str(threshold): {
            "same goal, other constraint": float((siblings >= threshold).mean()),
            "other goal": float((strangers >= threshold).mean()),
        }
        for threshold in THRESHOLDS
    }
    if arguments.json:
        json.dump({"siblings": siblings.size, "strangers": strangers.size, "shares": results}, sys.stdout)
        print()
        return 0
    print(f"{siblings.size} pairs of one goal, {strangers.size} of two")
    for threshold, shares in results.items():
        print(
            f"cosine {threshold} or more: "
            + ", ".join(f"{name} {share:.2e}" for name, share in shares.items())
        )
    return 0


def measure(texts: list[str]) -> NDArray[np.float32]:
    """The cosine of every two texts."""
    encoder = LightEncoder(locate(None))
    prepared = encoder.prepare(texts)
    vectors: dict[int, NDArray[np.float32]] = {}
    for batch in plan_batches([text.length for text in prepared], 2048):
        encoded = encoder.encode([prepared[index].input for index in batch])
        vectors |= dict(zip(batch, encoded, strict=True))
    matrix = np.stack([vectors[index] for index in range(len(texts))])
    cosines: NDArray[np.float32] = matrix @ matrix.T
    return cosines


if __name__ == "__main__":
    sys.exit(main())
