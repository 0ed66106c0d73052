"""What got worse and better than in a baseline, and what changed in the setup, as sections of tables.

The differences and tests are those of ``alignment.v1.CompareRunsResponse``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dramaturg.api.alignment.v1.accuracy_pb2 import AbstentionPolicy
from dramaturg.api.alignment.v1.compare_pb2 import (
    GATE_GO,
    GATE_INCONCLUSIVE,
    GATE_NO_GO,
    CompareRunsResponse,
    PolicyComparison,
    RunComparison,
)
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.results.names import value_name
from dramaturg.results.setups import setup_changes, setups_of
from dramaturg.tables.common import SIGNIFICANT
from dramaturg.tables.model import (
    Cell,
    Column,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    format_cost,
    name_cell,
    optional,
    p_sentence,
    p_value,
    percent_of,
    points,
    samples_link,
    value_of,
    words,
)

GATES = {GATE_GO: "GO", GATE_NO_GO: "NO-GO", GATE_INCONCLUSIVE: "INCONCLUSIVE"}
"""The names of decisions."""

LISTED_FLIPS = 100
"""The number of changes of each direction that are listed; all are in the samples."""

OPEN_FLIPS = 20
"""The number of these that are not folded."""

WORSE, BETTER, CHANGED = "worse", "better", "changed"
"""The directions of a change. CHANGED: to or from an abstention."""

FLIPPED = {WORSE: "Got worse", BETTER: "Got better", CHANGED: "Abstentions that changed"}
"""The titles of the sections of judgements that differ, by direction."""

CHANGES = "What changed in the setup"
"""The title of the section that stands above the judgements that differ."""

_HASH_LENGTH = 12


@dataclass(frozen=True)
class Flip:
    """A judgement that differs from that of the baseline."""

    run: str
    """The name of the result."""
    sample: str
    subject: str
    aspect: str
    before: str
    after: str
    direction: str
    """WORSE, BETTER or CHANGED."""
    model: str = ""
    """The author of the subject. Empty: it is not known."""

    @property
    def judged(self) -> tuple[str, str, str, str]:
        """What one judgement differs in, if each model has one subject in the sample."""
        return self.run, self.sample, self.aspect, self.model


@dataclass(frozen=True)
class Comparison:
    """A comparison of results with a baseline."""

    runs: Sequence[str]
    """The names of the results, the baseline first."""
    summaries: Mapping[str, Summary]
    response: CompareRunsResponse
    flips: Sequence[Flip]
    value: str
    """What a value says, in words, e.g. "passed"."""
    shares: bool
    """Whether values are verdicts, whose means are shares."""
    left_out: Sequence[str] = ()
    """Sentences on items that are in no figure."""


def _whole(comparison: Comparison) -> Iterator[tuple[RunComparison, PolicyComparison]]:
    for one in comparison.response.comparisons:
        if not one.group:
            yield one, _policy(comparison.response, one)


def _policy(response: CompareRunsResponse, one: RunComparison) -> PolicyComparison:
    return next(part for part in one.policies if part.policy == response.abstention_policy)


def lead(comparison: Comparison) -> str:
    """The decision on each result with its reason, then what it rests on."""
    sentences = []
    show = _format(shares=comparison.shares)
    for one, part in _whole(comparison):
        text = f"{_decision(comparison, one.system, part)}: "
        text += f"{part.worse_count:,} of {one.item_count:,} judgements got worse and "
        text += f"{part.better_count:,} better"
        abstained = sum(flip.direction == CHANGED for flip in comparison.flips if flip.run == one.system)
        if abstained:
            text += f", {abstained:,} changed to or from an abstention"
        value = value_of(part.difference)
        if value is not None:
            text += f"; the difference of {_signed(value, show).replace(' pp', ' percentage points')}"
            if part.HasField("adjusted_p_value"):
                surely = "is" if part.adjusted_p_value < SIGNIFICANT else "is not"
                text += f" {surely} significant ({p_sentence(part.adjusted_p_value)})"
        sentences.append(f"{text}.")
    return " ".join(
        [*sentences, "The setup changed too." if _changes(comparison) else "The judges are the same."]
    )


def _decision(comparison: Comparison, system: str, part: PolicyComparison) -> str:
    """The corrected decision on a result and why it is so, as ``compare`` decides with a margin of 0."""
    gate = part.corrected_gate or part.gate or GATE_INCONCLUSIVE
    baseline = comparison.runs[0]
    if gate == GATE_NO_GO:
        return f"{GATES[gate]}: {system} is worse than {baseline}"
    if gate == GATE_INCONCLUSIVE:
        return f"{GATES[gate]}: {system} is not shown to be worse than {baseline}, nor to be no worse"
    if _changes(comparison):
        return (
            f"{GATES[GATE_INCONCLUSIVE]}: {system} is no worse than {baseline}, but the judges differ, "
            "which may be the reason"
        )
    return f"{GATES[gate]}: {system} is shown to be no worse than {baseline}"


def _format(*, shares: bool) -> Callable[[float | None], str]:
    """The format of values: of shares, or of scores."""
    return percent_of if shares else lambda value: figure(value, 3)


def _signed(value: float, show: Callable[[float | None], str]) -> str:
    return f"{'−' if value < 0 else '+'}{points(show(abs(value)))}"


def change_counts(comparison: Comparison) -> Sequence[tuple[str, str]]:
    """How many judgements changed in each direction."""
    counts = {way: sum(one.direction == way for one in comparison.flips) for way in (WORSE, BETTER, CHANGED)}
    return [
        ("got worse", f"{counts[WORSE]:,}"),
        ("got better", f"{counts[BETTER]:,}"),
        ("to or from an abstention", f"{counts[CHANGED]:,}"),
    ]


def sections(comparison: Comparison) -> Iterator[Section]:
    """What changed in the setup, the judgements that differ, the differences with tests, and counts."""
    if changes := _changes(comparison):
        yield Section(CHANGES, lines=[f"{one}." for one in changes], warning=True)
    for direction, title in FLIPPED.items():
        flips = [one for one in comparison.flips if one.direction == direction]
        if flips:
            listed = flips[:LISTED_FLIPS]
            note = f"The first {len(listed):,} of {len(flips):,}." if len(listed) < len(flips) else ""
            tables = [_flips(title, listed[:OPEN_FLIPS])]
            if rest := listed[OPEN_FLIPS:]:
                tables.append(_flips(f"{title}, continued", rest, folded=f"{len(rest):,} more"))
            yield Section(title, tables, note)
    yield Section(
        "Differences",
        [differences(comparison.response, shares=comparison.shares)],
        f"The share or mean of what was {comparison.value}, over judgements that both results have, less "
        "that of the baseline. p is that of the paired test, adjusted for the number of comparisons (Holm)."
        f"{' pp: percentage points.' if comparison.shares else ''}",
        lines=[f"{reason}." for reason in comparison.response.gate_reasons],
    )
    yield Section(
        "Setup", [_judges(comparison)], "A mark says that a judge differs from that of the baseline."
    )
    yield Section("Results", [_results(comparison)])


def _flips(caption: str, flips: Sequence[Flip], folded: str = "") -> Table:
    names = ("sample", "of")
    table = Table(caption, columns(*names, texts=("by", "result", "baseline", "now")), heads=2, folded=folded)
    differing = Counter(one.judged for one in flips)
    for one in flips:
        table.add_row(
            Cell(one.sample, link=samples_link(id=one.sample, **{f"tag.{one.direction}": one.aspect})),
            name_cell(one.model if one.model and differing[one.judged] == 1 else one.subject),
            one.aspect,
            one.run,
            words(one.before),
            words(one.after),
        )
    return table


def differences(response: CompareRunsResponse, *, shares: bool, gated: bool = False) -> Table:
    """The differences to the baseline with their tests.

    Args:
        response: The comparisons.
        shares: Whether values are verdicts, whose means are shares.
        gated: Whether the decisions are shown, and every policy of abstentions where something abstained.
            Otherwise the policy of the gate stands alone.
    """
    # Corrections are of all comparisons under a policy: abstentions of one tell the policies of all apart.
    abstained = any(one.baseline_abstained_count + one.abstained_count for one in response.comparisons)
    parts = [
        (one, part)
        for one in response.comparisons
        for part in (one.policies if gated and abstained else [_policy(response, one)])
    ]
    show = _format(shares=shares)
    ends = [abs(end) for _, part in parts for end in (part.difference.lower, part.difference.upper)]
    reach = max([0.01, *ends])
    heads = [
        Column("baseline"),
        Column("now"),
        Column("difference", interval=f"±{points(show(reach))}"),
        *([Column("lower bound")] if gated else []),
        Column("worse", detail=gated),
        Column("better", detail=gated),
        Column("p"),
        *([Column("p (BH)", detail=True), Column("detectable", detail=True)] if gated else []),
        Column("judgements"),
        *([Column("gate")] if gated else []),
    ]
    names = ("result", "by", *(("abstentions",) if gated and abstained else ()))
    table = Table("Differences to the baseline", columns(*names, figures=heads))
    for one, part in parts:
        tags = {name: {name: one.group} for name in (WORSE, BETTER)} if one.group else {}
        table.add_row(
            one.system,
            one.group or "all",
            *([policy_name(part.policy)] if gated and abstained else []),
            estimate_cell(part.baseline_mean, show=show),
            estimate_cell(part.system_mean, show=show),
            _difference(part, reach, show),
            *([_optional_cell(part, "lower_bound", show)] if gated else []),
            count(part.worse_count, samples_link(tags[WORSE]) if tags else ""),
            count(part.better_count, samples_link(tags[BETTER]) if tags else ""),
            _p_cell(part, "adjusted_p_value"),
            *(
                [
                    _p_cell(part, "false_discovery_p_value"),
                    _optional_cell(part, "minimum_detectable_effect", show),
                ]
                if gated
                else []
            ),
            f"{part.difference.count:,} of {part.difference.total:,}" if gated else count(one.item_count),
            *([_gate(part)] if gated else []),
        )
    return table


def policy_name(policy: AbstentionPolicy.ValueType) -> str:
    """A policy as it is shown, such as "worst-case"."""
    return value_name(AbstentionPolicy, policy).lower().replace("_", "-")


def _difference(part: PolicyComparison, reach: float, show: Callable[[float | None], str]) -> Cell:
    found = part.difference
    cell = estimate_cell(found, scale=(-reach, reach), show=lambda value: points(show(value)))
    return replace(cell, text=_signed(found.value, show)) if found.HasField("value") else cell


def _optional_cell(part: PolicyComparison, name: str, show: Callable[[float | None], str]) -> Cell:
    value = optional(part, name)
    return Cell("" if value is None else points(show(value)), value)


def _p_cell(part: PolicyComparison, name: str) -> Cell:
    value = optional(part, name)
    return Cell(p_value(value), value)


def _gate(part: PolicyComparison) -> str:
    """The corrected decision; a GO that is not corrected, or does not survive the correction, says so."""
    if part.gate == GATE_GO != part.corrected_gate:
        return f"{GATES[part.gate]} (uncorrected)"
    return GATES[part.gate]


def _changes(comparison: Comparison) -> Sequence[str]:
    return setup_changes({run: setups_of(comparison.summaries[run].judges) for run in comparison.runs})


def _judges(comparison: Comparison) -> Table:
    baseline = setups_of(comparison.summaries[comparison.runs[0]].judges)
    names = ("result", "role", "judge")
    texts = ("name and version", "model", "prompts", "against the baseline")
    table = Table("Judges of each result", columns(*names, texts=texts), heads=3)
    for run in comparison.runs:
        for one in sorted(setups_of(comparison.summaries[run].judges)):
            prompts = ", ".join(f"{name} {digest[:_HASH_LENGTH]}" for name, digest in one.prompts)
            named = f"{one.name} {one.version}".strip()
            same = "" if one in baseline or not one.name else "changed"
            table.add_row(run, one.role, one.judge, named, one.model, prompts, same)
    return table


def _results(comparison: Comparison) -> Table:
    heads = ("samples", "failed", "judgements", "abstained", "cost")
    table = Table("Counts and cost", columns("result", texts=("models",), figures=heads), heads=1)
    for run in comparison.runs:
        summary = comparison.summaries[run]
        table.add_row(
            run,
            ", ".join(entry.model or "(unnamed)" for entry in summary.leaderboard),
            count(summary.sample_count),
            count(summary.failed_sample_count),
            count(summary.judgement_count),
            count(sum(summary.abstentions_by_reason.values())),
            Cell(format_cost(summary.usage), optional(summary.usage, "cost_usd")),
        )
    return table
