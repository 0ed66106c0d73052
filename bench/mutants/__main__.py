"""Breaks the code on purpose, and counts how often the tests notice.

A mutant is one change of one place, made by an operator of cosmic-ray: another comparison, another number, a
removed decorator, a loop without rounds. ``--count`` of them are drawn with the seed, one of each line and
kind of operator at most. Each is tried in a copy of the project against the tests that run its line, as a
coverage of these tests states: it is caught if one of them fails, or if they do not end within ``--timeout``.
Not drawn are places in annotations and docstrings, and those that no test of the folders runs; the share of
the latter is printed. Tests that fail without a mutant are left out.

    make mutants [N=200] [PARTS="gateway services"]

``make`` installs cosmic-ray and coverage under ``.tools/mutants``. What tests run in other processes does not
count as run. A mutant that behaves as the original does survives: the share caught is a lower bound.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools" / "mutants"
MAKER = TOOLS / "venv" / "bin" / "python"
PACKAGES = TOOLS / "packages"
MARKS = "not slow and not endurance and not alone"
TESTS_TRIED = 60
"""The most tests that a mutant is tried against, those that run the fewest lines first."""
IGNORED = shutil.ignore_patterns(".git", ".venv", ".tools", "node_modules", "__pycache__", ".*_cache")
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)

Places = Mapping[str, Mapping[int, Sequence[str]]]
"""The tests that run each line of each file."""


@dataclass(frozen=True)
class Mutant:
    """A change of one place."""

    file: str
    line: int
    operator: str
    code: str
    """The whole file with the change."""


def main() -> None:
    """Draws mutants, tries them, and prints those that survive and the share that is caught."""
    parser = argparse.ArgumentParser(description="Counts the broken versions of the code that tests notice.")
    parser.add_argument("parts", nargs="*", default=["gateway", "services"], help="folders of the code")
    parser.add_argument("--tests", nargs="*", help="folders of tests; absent: those of the parts")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for the tests of a mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    copies = [TOOLS / f"copy-{number}" for number in range(options.jobs)]
    for copy in copies:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ROOT, copy, ignore=IGNORED)
    tests = options.tests or [f"tests/{part}" for part in options.parts]
    places = covered(copies[0], options.parts, tests, options.jobs)
    mutants, bare = drawn(places, options.parts, options.count, random.Random(options.seed))
    print(f"{len(mutants)} mutants; no test of {' '.join(tests)} runs {bare:.1%} of the places drawn")
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def tried(mutant: Mutant) -> bool:
        copy = free.get()
        try:
            return is_caught(mutant, places[mutant.file][mutant.line], copy, options.timeout)
        finally:
            free.put(copy)

    caught = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, found in zip(mutants, pool.map(tried, mutants), strict=True):
            caught += found
            if not found:
                place = f"{mutant.operator} at {mutant.file}:{mutant.line}"
                print(f"survives: {place}\n{changed(mutant)}", flush=True)
    print(f"{caught} of {len(mutants)} caught ({caught / max(1, len(mutants)):.1%})")


def covered(copy: Path, parts: Sequence[str], tests: Sequence[str], jobs: int) -> Places:
    """Runs the tests once, and returns which of them run each line."""
    report, settings = copy / "coverage.json", copy / "coverage.ini"
    settings.write_text("[json]\nshow_contexts = true\n", encoding="utf-8")
    measured = [f"--cov={part}" for part in parts]
    cover = [*measured, "--cov-context=test", f"--cov-config={settings}", f"--cov-report=json:{report}"]
    _, said = run(copy, ["-p", "pytest_cov", *cover, "-q", "-n", str(jobs), "-m", MARKS, *tests], None)
    failing = set(FAILED.findall(said))
    found: dict[str, dict[int, list[str]]] = {
        file: {
            int(line): sorted({one.partition("|")[0] for one in contexts if one} - failing)
            for line, contexts in measures["contexts"].items()
        }
        for file, measures in json.loads(report.read_text(encoding="utf-8"))["files"].items()
    }
    counts = Counter(name for lines in found.values() for names in lines.values() for name in names)
    return {
        file: {
            line: sorted(names, key=lambda one: counts[one])[:TESTS_TRIED] for line, names in lines.items()
        }
        for file, lines in found.items()
    }


def drawn(
    places: Places, parts: Sequence[str], count: int, generator: random.Random
) -> tuple[list[Mutant], float]:
    """Draws mutants whose line a test runs, and returns the share of places drawn that none runs."""
    files = [str(file.relative_to(ROOT)) for part in parts for file in sorted((ROOT / part).rglob("*.py"))]
    every = json.loads(_made(["--places"], json.dumps(files)))
    generator.shuffle(every)
    mutants: list[Mutant] = []
    bare, seen = 0, set()
    for file, operator, occurrence, line in every:
        if len(mutants) == count:
            break
        place = file, line, operator.split("_")[0]
        if place in seen:
            continue
        seen.add(place)
        code = _made(["--code", file, operator, str(occurrence)])
        if meaning(code) in {"", meaning((ROOT / file).read_text(encoding="utf-8"))}:
            continue
        if places.get(file, {}).get(line):
            mutants.append(Mutant(file, line, operator, code))
        else:
            bare += 1
    return mutants, bare / max(1, bare + len(mutants))


def _made(arguments: Sequence[str], given: str = "") -> str:
    """What this module prints where cosmic-ray is installed."""
    command = [str(MAKER), __file__, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def meaning(code: str) -> str:
    """The code without docstrings and annotations, which nothing reads. Empty: it does not parse."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return ast.dump(tree)


def is_caught(mutant: Mutant, tests: Sequence[str], copy: Path, timeout: float) -> bool:
    """Whether one of the tests fails with a mutant in a copy of the project."""
    file = copy / mutant.file
    original = file.read_text(encoding="utf-8")
    file.write_text(mutant.code, encoding="utf-8")
    try:
        return run(copy, ["-x", "-q", "-n", "0", *tests], timeout)[0] != 0
    finally:
        file.write_text(original, encoding="utf-8")


def run(copy: Path, arguments: Sequence[str], timeout: float | None) -> tuple[int, str]:
    """Runs pytest in a copy of the project.

    Returns:
        The exit code, -1 if it did not end in time, and the output.
    """
    # Before the project of the environment: commands that tests start find the copy too.
    path = f"{copy}{os.pathsep}{PACKAGES}"
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return -1, ""
        return process.returncode, said


def changed(mutant: Mutant) -> str:
    """The first line that a mutant changes, before and after."""
    before = (ROOT / mutant.file).read_text(encoding="utf-8").splitlines()
    pairs = zip(before, mutant.code.splitlines(), strict=False)
    old, new = next(((old, new) for old, new in pairs if old != new), ("", ""))
    return f"- {old.strip()}\n+ {new.strip()}"


def _operators() -> Iterator[tuple[str, Any]]:
    from cosmic_ray.plugins import get_operator, operator_names  # type: ignore[import-not-found]

    for name in operator_names():
        # Those that insert or replace variables need their names.
        if not name.startswith("core/Variable"):
            yield name, get_operator(name)


def _print_places() -> None:
    """Prints every place of the files that the input lists. Runs where cosmic-ray is installed."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path  # type: ignore[import-not-found]

    operators = [(name, made()) for name, made in _operators()]
    found = []
    for file in json.load(sys.stdin):
        counts: Counter[str] = Counter()
        for node in ast_nodes(get_ast_from_path(Path(file))):
            for name, operator in operators:
                for (line, _), _ in operator.mutation_positions(node):
                    found.append((file, name, counts[name], line))
                    counts[name] += 1
    json.dump(found, sys.stdout)


def _print_code(file: str, name: str, occurrence: int) -> None:
    """Prints a file with one change. Runs where cosmic-ray is installed."""
    from cosmic_ray.mutating import mutate_code  # type: ignore[import-not-found]

    made = dict(_operators())[name]()
    sys.stdout.write(mutate_code(Path(file).read_text(encoding="utf-8"), made, occurrence) or "")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--places"]:
        _print_places()
    elif sys.argv[1:2] == ["--code"]:
        _print_code(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
