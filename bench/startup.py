"""The time until a command or an import is done, beside that of Python itself, in one run.

Each is run ``--repeat`` times in turn, after once without being measured, and the least time is shown: that
of the machine at its quietest. Ratios are to ``python -c pass`` of the same run. The sample is evaluated
offline, by services that the command starts itself.

    python bench/startup.py [--repeat 5] [--json] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from platform import python_version
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "examples" / "scripts" / "tasks.jsonl"
BASE = "python -c pass"
HELP, VERSION, SAMPLE = "dramaturg --help", "dramaturg --version", "one offline sample"
PACKAGE, CLIENT = "import dramaturg", "import dramaturg.client"
HARNESS = "import dramaturg.integrations.judge"
CONFIGURATION = ("DRAMATURG_", "OPENAI_", "OTEL_", "MODEL")


@dataclass(frozen=True)
class Took:
    """What one process took, in seconds."""

    wall: float
    cpu: float


def commands(folder: Path) -> Mapping[str, Sequence[str]]:
    """The command of each measurement.

    Args:
        folder: For the row and the results of the sample.
    """
    row = folder / "row.jsonl"
    row.write_text(SAMPLES.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    dramaturg = (sys.executable, "-m", "dramaturg")
    return {
        BASE: (sys.executable, "-c", "pass"),
        PACKAGE: (sys.executable, "-c", PACKAGE),
        CLIENT: (sys.executable, "-c", CLIENT),
        HARNESS: (sys.executable, "-c", HARNESS),
        VERSION: (*dramaturg, "--version"),
        HELP: (*dramaturg, "--help"),
        SAMPLE: (*dramaturg, "eval", "--kind", "scripts", str(row), "--out", str(folder / "out"), "--json"),
    }


def took(command: Sequence[str], environment: Mapping[str, str]) -> Took:
    """Runs a command to its end."""
    before, begun = _children(), time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    return Took(time.perf_counter() - begun, _children() - before)


def measure(repeat: int) -> dict[str, Took]:
    """The least time of each command."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(CONFIGURATION)}
    with tempfile.TemporaryDirectory() as name:
        # What the services keep stays out of the user's folders.
        environment |= {"XDG_DATA_HOME": name}
        all_commands = commands(Path(name))
        found: dict[str, list[Took]] = {one: [] for one in all_commands}
        for command in all_commands.values():
            took(command, environment)
        for _ in range(repeat):
            for one, command in all_commands.items():
                found[one].append(took(command, environment))
    return {
        name: Took(min(one.wall for one in some), min(one.cpu for one in some))
        for name, some in found.items()
    }


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def as_json(result: Mapping[str, Took]) -> dict[str, Any]:
    base = result[BASE]
    return {
        "measured": {
            name: {
                "wall_seconds": round(one.wall, 3),
                "cpu_seconds": round(one.cpu, 3),
                "wall_ratio": round(one.wall / base.wall, 1),
            }
            for name, one in result.items()
        },
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": python_version(),
    }


def as_table(result: Mapping[str, Took]) -> Table:
    table = Table(caption=f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    for column in ("", "seconds", f"/ {BASE}", "CPU seconds"):
        table.add_column(column, justify="right" if column else "left")
    for name, one in result.items():
        ratio = one.wall / result[BASE].wall
        table.add_row(name, f"{one.wall:.3f}", f"{ratio:.1f}", f"{one.cpu:.3f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="how often each is measured")
    parser.add_argument("--quick", action="store_true", help="each once, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    result = measure(1 if options.quick else options.repeat)
    if options.json:
        print(json.dumps(as_json(result), indent=2))
    else:
        Console().print(as_table(result))


if __name__ == "__main__":
    main()
