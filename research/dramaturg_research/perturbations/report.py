"""``dramaturg research perturb report``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.api.evaluation.v1.summary_pb2 import PerturbationFigures, SummaryOptions
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.summaries import summarize_results
from dramaturg.cli.tables import print_sections
from dramaturg.cli.terminal import tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg.kinds.scripts.tables import perturbation_section
from dramaturg.meta_evaluation.rules import CANDIDATE_TAG, CATEGORY_TAG, LINE_TAG, UNTOUCHED, Category
from dramaturg.results.files import read_results
from dramaturg.summaries.estimates import estimate
from dramaturg.tables.common import limit_sections
from dramaturg.tables.verdicts import ALL


def report(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            help="The folder of results, its results.jsonl, or an export of a run (samples-jsonl).",
        ),
    ],
    target: Target = None,
    as_json: AsJson = False,
) -> None:
    """Reports detection rates of faults and false-alarm rates.

    RESULTS are results of scripts, of "eval" or of a run, on the rows of "perturb write". For each category
    and rule: the share of scripts with the fault that fail its criterion (detection rate), the same for
    scripts that pass unchanged, and the share of unchanged scripts that fail it (false alarms). Shares are
    of the verdicts that decide, with Wilson's interval for the effective number of tasks. The figures are
    those of the summary, which "dramaturg show" prints.

    Exit codes: 0 fine, 1 figures are missing, 2 wrong usage or results.

    For example:

        dramaturg research perturb report out/perturbed --json
    """
    _check(results)
    summary = run(summarize_results(target, results, SummaryOptions()))
    found = summary.scripts.perturbations
    if as_json:
        described = {**_describe(found), "failed_samples": summary.failed_sample_count}
        typer.echo(json.dumps(described, ensure_ascii=False))
    else:
        console = output()
        print_sections(console, [perturbation_section(found), *limit_sections(summary)])
        if summary.failed_sample_count:
            failed = f"{summary.failed_sample_count} samples failed and are in no figure"
            console.print(failed, style="red")
    tell_next("report", results)
    raise typer.Exit(1 if summary.problems else 0)


def _check(results: Path) -> None:
    """Checks that all results are of rows of ``research perturb write``.

    Raises:
        typer.Exit: 2 with a message.
    """
    count = 0
    try:
        for sample in read_results(results):
            if sample.WhichOneof("result") not in (None, "scripts"):
                fail(f"{results}: a result is of no scripts")
            if sample.HasField("scripts"):
                count += 1
                for problem in _problems(sample.scripts):
                    fail(f"{results}: a result {problem}")
    except LineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or results}: {error.strerror or error}")
    if not count:
        fail(f"{results}: there are no results")


def _problems(result: ScriptsResult) -> Iterator[str]:
    for tag in (CATEGORY_TAG, CANDIDATE_TAG, LINE_TAG):
        if tag not in result.tags:
            yield f"has no tag {tag!r}: it is not of a row of 'perturb write'"
    category = result.tags[CATEGORY_TAG]
    if category != UNTOUCHED and category not in list(Category):
        yield f"has an unknown {CATEGORY_TAG} {category!r}"
    name = result.tags[CANDIDATE_TAG]
    if all(one.candidate_id != name for one in result.candidates):
        yield f"has no candidate {name!r}"


def _describe(found: PerturbationFigures) -> dict[str, Any]:
    """The figures as members of a JSON object."""
    alarms = {one.criterion: _describe_flags(one.alarms) for one in found.false_alarms}
    none = _describe_flags(AccuracyGroup())
    return {
        "faults": found.fault_count,
        "untouched": found.unperturbed_count,
        "detection": [
            {
                "category": one.category,
                "operation": one.operation or ALL,
                "criterion": one.criterion,
                **_describe_flags(one.faults),
                "passed_untouched": _describe_flags(one.passed_unperturbed),
                "false_alarms": alarms.get(one.criterion, none),
                "youden_j": one.youden_j if one.HasField("youden_j") else None,
            }
            for one in found.faults
        ],
        "false_alarms": alarms,
    }


def _describe_flags(group: AccuracyGroup) -> dict[str, Any]:
    """The verdicts, those that decide, and those of them that flag a fault."""
    return {
        "n": group.item_count,
        "judged": group.answered_count,
        "flagged": group.correct_count,
        "rate": estimate(group.accuracy_when_answered),
        "rate_abstentions_unflagged": estimate(group.accuracy_abstentions_wrong),
        "abstentions": {
            name.removeprefix("ABSTAIN_REASON_"): count for name, count in sorted(group.abstentions.items())
        },
    }
