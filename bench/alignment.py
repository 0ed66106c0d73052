"""How the time of AlignmentService's methods grows with the number of items.

Prints, for each method, the time at n items and the ratio of the time at 2n to it: 2 is linear. ``--json``
prints one object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from services.alignment.bootstrap import Resampling
from services.alignment.calibration import Design, Judgements, calibrate
from services.alignment.correlation.measure import Series, correlate

RESAMPLING = Resampling(2000, 1, 0.95, lambda: None)


def correlation(items: int) -> None:
    human, noise = np.random.default_rng(1).normal(size=(2, items))
    correlate(human, {"judge": Series(np.arange(items), human + noise)}, RESAMPLING)


def calibration(items: int) -> None:
    generator = np.random.default_rng(1)
    confidence = generator.random(items)
    correct = (generator.random(items) < confidence).astype(np.float64)
    judgements = Judgements(confidence, correct, np.full(items, -1))
    design = Design(10, equal_count=False, target=None, clustered=False, resampling=RESAMPLING)
    calibrate(judgements, [], np.full(items, -1), design)


METHODS: dict[str, Callable[[int], None]] = {
    "CorrelateScores": correlation,
    "MeasureCalibration": calibration,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000, help="n")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    found = {}
    for name, method in METHODS.items():
        seconds = [measure(method, items) for items in (arguments.items, 2 * arguments.items)]
        found[name] = {"seconds": seconds[0], "ratio": seconds[1] / seconds[0]}
    if arguments.json:
        json.dump({"items": arguments.items, **found}, sys.stdout)
        print()
        return 0
    for name, figures in found.items():
        print(f"{name}: {figures['seconds']:.2f} s for {arguments.items} items, ratio {figures['ratio']:.2f}")
    return 0


def measure(method: Callable[[int], None], items: int) -> float:
    """The least processor time of two runs."""
    times = []
    for _ in range(2):
        start = time.process_time()
        method(items)
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    raise SystemExit(main())
