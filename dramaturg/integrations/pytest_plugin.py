"""The pytest plugin: the fixture ``judge``, a budget, and one report of all judgements.

pytest loads this module in every run of an environment with dramaturg. Until a test asks for the fixture it
imports nothing else.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dramaturg.evaluation import Criteria
    from dramaturg.integrations.judge import HarnessJudgement, HarnessResult

NO_GOAL = "No prompt is stated."
"""The goal of a text whose test states none."""
_PROPERTY = "dramaturg"
"""The property of a test for each call: reports bring it from other processes, and JUnit files hold it."""
_RESULTS = "dramaturg-results"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("dramaturg", "judges of dramaturg")
    group.addoption(
        "--judge-report",
        type=Path,
        metavar="FILE",
        help="Write all judgements to FILE: one call a line, in JSON.",
    )
    group.addoption(
        "--judge-replay",
        type=Path,
        metavar="FILE",
        help="Take judgements from FILE, which --judge-report wrote, and call no gateway. A call that FILE "
        "does not hold fails its test.",
    )
    group.addoption(
        "--judge-budget",
        type=float,
        metavar="USD",
        help="Once the judgements cost this much, further calls fail their tests. Processes of pytest-xdist "
        "have equal shares.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Reads the file of judgements, and begins the report."""
    config.pluginmanager.register(_Results(config), _RESULTS)


class _Results:
    """The results of a process, from a file or bought within a budget, and the report of all processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._file: Path | None = config.getoption("--judge-replay")
        self._replay = None if self._file is None else read_judgements(self._file)
        self._report: Path | None = config.getoption("--judge-report")
        budget: float | None = config.getoption("--judge-budget")
        self._is_worker = hasattr(config, "workerinput")
        workers = getattr(config, "workerinput", {}).get("workercount", 1)
        self._budget = None if budget is None else budget / workers
        self._spent, self._unpriced = 0.0, 0
        self._records: list[dict[str, Any]] = []

    def get(self, key: str, call: Callable[[], HarnessResult]) -> HarnessResult:
        """The result of a call. Fails the test if there is none."""
        if self._replay is not None:
            if key not in self._replay:
                _fail(
                    f"--judge-replay: {self._file} does not hold this call: the text, the goal, the criteria "
                    "or the judge changed. Write the file anew with --judge-report."
                )
            return self._replay[key]
        if self._budget is not None and self._unpriced:
            _fail(
                f"--judge-budget cannot be kept: {self._unpriced} model calls have no known price. State the "
                "price of the model, or leave the budget out."
            )
        if self._budget is not None and self._spent >= self._budget:
            _fail(f"--judge-budget: {self._spent:g} of {self._budget:g} US dollars are spent")
        result = call()
        self._spent += result.cost_usd or 0.0
        self._unpriced += result.unpriced_calls
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collects the calls of a test that ended."""
        if report.when == "teardown":
            self._records += [
                json.loads(str(value)) for name, value in report.user_properties if name == _PROPERTY
            ]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Writes the file of judgements and the last section of the output."""
        if self._report is not None and not self._is_worker:
            lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in self._records]
            self._report.write_text("".join(lines), encoding="utf-8")
        if not self._records:
            return
        counts: collections.Counter[str] = collections.Counter()
        terminalreporter.section("judgements")
        for record in self._records:
            for one in record["judgements"]:
                outcome = one.get("outcome") or one["label"]
                counts[one.get("outcome") or "SCORE"] += 1
                reason = f" {one['abstain_reason']}" if "abstain_reason" in one else ""
                terminalreporter.write_line(f"{outcome}{reason} {one['criterion']} {record['test']}")
        cost = sum(record["cost_usd"] or 0.0 for record in self._records)
        unpriced = sum(record["unpriced_calls"] for record in self._records)
        parts = [f"{count} {outcome}" for outcome, count in sorted(counts.items())]
        parts.append("replayed" if self._replay is not None else f"{cost:g} US dollars")
        parts += [f"{unpriced} model calls without a known price"] if unpriced else []
        terminalreporter.write_line(", ".join(parts))


class Judge:
    """The fixture ``judge``."""

    def __init__(self, node: pytest.Item, arguments: Mapping[str, Any], results: _Results) -> None:
        self._node = node
        self._arguments = arguments
        self._results = results

    def evaluate(
        self, text: str, *, criteria: Criteria | None = None, goal: str = NO_GOAL, reference: str = ""
    ) -> HarnessResult:
        """Judges a text, or a script if there are no criteria.

        Args:
            text: The text or script.
            criteria: The rubric: a TOML file, what passes by the id of a criterion, or fields of criteria.
            goal: The prompt or question that it answers.
            reference: A good text. Empty: none.

        Raises:
            ServiceError: The gateway refused the request or failed.
        """
        from dramaturg.integrations.judge import HarnessJudge

        judge = HarnessJudge(criteria, **self._arguments)
        key = judge.key(text, goal=goal, reference=reference)
        result = self._results.get(key, lambda: judge(text, goal=goal, reference=reference))
        record = {"test": self._node.nodeid, "key": key, **result.to_json()}
        self._node.user_properties.append((_PROPERTY, json.dumps(record)))
        return result

    def assert_passes(
        self, text: str, *, criteria: Criteria | None = None, goal: str = NO_GOAL, reference: str = ""
    ) -> None:
        """Fails the test unless the text passes every criterion. An abstention is no pass.

        Args:
            text: See ``evaluate``.
            criteria: See ``evaluate``. One with a scale does not pass: assert the value that ``evaluate``
                returns.
            goal: See ``evaluate``.
            reference: See ``evaluate``.

        Raises:
            ServiceError: The gateway refused the request or failed.
        """
        __tracebackhide__ = True
        judgements = self.evaluate(text, criteria=criteria, goal=goal, reference=reference).judgements
        if not judgements or not all(one.passed for one in judgements):
            _fail("\n".join(_lines(judgements)) or "nothing was judged")


def _lines(judgements: tuple[HarnessJudgement, ...]) -> Iterator[str]:
    for one in judgements:
        if not one.passed:
            score = f"the score {one.label}, which neither passes nor fails"
            yield f"{one.criterion}: {one.outcome or score}"
            yield from (f"    {line}" for line in one.explanation.splitlines())


def _fail(message: str) -> None:
    __tracebackhide__ = True
    pytest.fail(message, pytrace=False)


def read_judgements(file: Path) -> Mapping[str, HarnessResult]:
    """The results of a file of ``--judge-report``, by the keys of their calls.

    Raises:
        pytest.UsageError: It cannot be read, or a line is no judgement.
    """
    from dramaturg.integrations.judge import HarnessResult

    results = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"--judge-replay: {file} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            del record["test"]
            key = record.pop("key")
            results[key] = HarnessResult.from_json(record)
        except (KeyError, TypeError, ValueError) as error:
            raise pytest.UsageError(f"--judge-replay: {file}:{number} is no judgement: {error}") from error
    return results


@pytest.fixture(scope="session")
def judge_arguments() -> Mapping[str, Any]:
    """Arguments of ``HarnessJudge`` for all tests, e.g. ``model``. A ``conftest.py`` may override it."""
    return {}


@pytest.fixture
def judge(request: pytest.FixtureRequest, judge_arguments: Mapping[str, Any]) -> Judge:
    """Judges texts; the report has every judgement."""
    results: Any = request.config.pluginmanager.get_plugin(_RESULTS)
    return Judge(request.node, judge_arguments, results)
