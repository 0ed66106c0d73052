"""DRPE (Wu et al. 2023, arXiv 2303.15078): Table 1 and Figure 7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import grpc

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.correlation_pb2 import CorrelationDifference, MeasureCorrelation
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import PairsRunOptions, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import PairMethodFigures, Summary
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PRESENTATION_ORDER_AS_GIVEN,
    ROLE_ORIGIN_SUBJECTIVE_COARSE,
    Role,
)
from dramaturg.datasets.json_lines import LineError, json_document
from dramaturg.judge.role_sets import FIXED_ROLES, role_set
from dramaturg.kinds.pairs import COUNT_TAG, LINE_TAG
from dramaturg.plots.figures import LineChart, counted
from dramaturg.service.errors import from_rpc_error
from dramaturg.tables.model import Cell, Column, Row, Table
from dramaturg_research.formats.goyal import BEST, WORST, Study, agreement_request, read_study, vote_shares
from dramaturg_research.reproduction.cells import count, estimate, number, probability, words
from dramaturg_research.reproduction.paper import DataError, Omission, Reproduction, data_folder
from dramaturg_research.reproduction.session import Session

ROLES = ("roles", "pair-judge", "alignment")
"""The roles that a gateway must serve."""

TITLE = "Large Language Models are Diverse Role-Players for Summarization Evaluation (Wu et al. 2023)"
HUMAN_STUDIES = {"CNN": "cnn_human.json", "XSum": "bbc_human.json"}
"""The released human studies, by the name of the data set in the paper. The second one is optional."""
COUNTS = (5, 0, 2, 4, 6)
"""The numbers of generated roles: that of section 4.1, then those of Figure 7."""
METRICS = (
    *("rouge-1", "rouge-2", "rouge-l", "bleu", "meteor", "chrf"),
    *("embedding", "bertscore", "bertscore-precision", "bertscore-recall"),
)
"""The text metrics."""

_DIGITS = 2
_OBJECTIVE_COUNT = 3
_MANUAL_COUNT = 2
"""The subjective roles of the run of ManualDRPE; 0 is DRPE without roles, and 3 is its baseline."""
_SCORE = " (DRPEScore)"
_SCORE_MARK = " *"
_LLM, _MANUAL, _BERTSCORE = "llm", "fixed-roles", "bertscore"
# Table 1: BertScore, LLM, MDRPE, DRPE.
_TABLE_1 = {"CNN": ("0.55", "0.58", "0.75", "0.90"), "XSum": ("0.57", "0.62", "0.73", "0.87")}
# Goyal et al. 2022, in percent, and their Krippendorff's alphas.
_SYSTEMS = {"CNN": {"brio": "36", "t0": "8", "gpt3": "58"}, "XSum": {"brio": "20", "t0": "30", "gpt3": "57"}}
_ALPHAS = {"CNN": {BEST: "0.05", WORST: "0.11"}, "XSum": {BEST: "0.18", WORST: "0.15"}}
_PAIRS = {"CNN": "81"}


class _Judge(NamedTuple):
    """The runs of one model on one data set."""

    data: str
    """The name of the data set."""
    model: str
    swept: Summary
    """The numbers of generated roles, with the baselines and the text metrics."""
    manual: Summary
    cautioned: Summary | None
    """Told that neither order nor length is a reason. None: not asked for."""

    @property
    def name(self) -> str:
        """The data set and the model."""
        return f"{self.data}, {self.model}"


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Table 1 and Figure 7."""
    place = data_folder(folder, "drpe", HUMAN_STUDIES["CNN"])
    studies = {
        name: _read(place / file, session.seed)
        for name, file in HUMAN_STUDIES.items()
        if (place / file).exists()
    }
    counted = "; ".join(
        f"{name}: {len(one.articles)} articles of {place.name}/{HUMAN_STUDIES[name]}, {len(one.requests)} "
        "pairs of a best and a worst summary"
        for name, one in studies.items()
    )
    shown = (
        "Models see this order alone."
        if session.single_order
        else "Models see both orders, and a vote that changes with the order is for neither text."
    )
    order = f"The order of the texts is drawn with the seed {session.seed}."
    made = Reproduction(TITLE, f"Data: {counted}. {order} {shown}")
    metrics: dict[str, Summary] = {}
    judges: list[_Judge] = []
    for name, study in studies.items():
        pairs = session.selected(study.requests)
        prefix = "" if name == "CNN" else f"{name.lower()}-"
        spec = RunSpec(pairs=PairsRunOptions())
        scored = f"{prefix}metrics"
        metrics[name] = await session.run(scored, spec, list(_unjudged(pairs)), limited=False)
        judges += [await _judge(session, name, model, prefix, pairs, scored) for model in session.models]
    made.tables += [
        _table_1(metrics, judges),
        _methods(metrics, judges),
        *[await _section_4_1(session, name, study) for name, study in studies.items()],
    ]
    if judges:
        made.figures += [_figure_7(name, [one for one in judges if one.data == name]) for name in studies]
    else:
        made.omissions.append(
            Omission("Table 1, LLM, MDRPE and DRPE; Figure 7", "No model is named (--offline).")
        )
    if "XSum" not in studies:
        made.omissions.append(
            Omission(
                "Table 1 and Figure 7, XSum",
                f"{place.name} has no {HUMAN_STUDIES['XSum']}. Pairs of this file are made by the rule "
                "of CNN (84); the paper gives no number.",
            )
        )
    made.omissions += _OMISSIONS
    return made


_OMISSIONS = (
    Omission(
        "Table 1, the printed correlations",
        "text-davinci-003 is withdrawn, no outputs were released, and the paper does not state the order "
        "of the texts.",
    ),
    Omission(
        "Table 1, BertScore and MoverScore",
        "No maintained package has MoverScore, so it is not among the metrics. BERTScore has the encoder of "
        "the EmbeddingService; that of the paper is not stated. Metrics compare with the article, for the "
        "study has no references.",
    ),
    Omission(
        "Figure 7, ManualDRPE for 4 and 6 roles",
        "The paper names three subjective roles of ManualDRPE. 0, 2 and 3 of them are shown.",
    ),
)


async def _judge(
    session: Session,
    data: str,
    model: str,
    prefix: str,
    pairs: Sequence[EvaluatePairsRequest],
    scored: str,
) -> _Judge:
    """The runs of a model. The metrics, of a run of their own, stand beside its methods."""
    name = f"{prefix}{model}"
    spec = _spec(session, model)
    swept = await session.run(name, spec, list(_swept(pairs)), limited=False)
    if not session.dry_run:
        swept = await session.summarize([*await session.samples(scored), *await session.samples(name)])
    manual = await session.run(f"{name}-manual", spec, list(_manual(pairs)), limited=False)
    cautioned = None
    if session.ablations:
        spec.pairs.rules.bias_caution_omitted = False
        rows = list(_swept(pairs, COUNTS[:1]))
        cautioned = await session.run(f"{name}-cautioned", spec, rows, limited=False)
    return _Judge(data, model, swept, manual, cautioned)


def _read(file: Path, seed: int) -> Study:
    try:
        study = read_study(json_document(file), seed)
    except LineError as error:
        raise DataError(str(error)) from error
    except TypeError as error:
        raise DataError(f"{file}: {error}") from error
    if malformed := [one for one in study.left_out if one.malformed]:
        raise DataError(f"{file}: {malformed[0].key}: {malformed[0].reason}")
    if len(study.requests) < 2:
        raise DataError(f"{file}: has fewer than two articles with a clear best and worst summary")
    return study


def _spec(session: Session, model: str) -> RunSpec:
    spec = RunSpec(
        judges=[JudgeSelection(role=role, model=model) for role in ROLES[:2]], pairs=PairsRunOptions()
    )
    # The votes of equation 1: one of the two texts, and no word against length or order.
    spec.pairs.rules.forced_choice = True
    spec.pairs.rules.bias_caution_omitted = True
    if session.single_order:
        spec.pairs.order = PRESENTATION_ORDER_AS_GIVEN
    return spec


def _numbered(pairs: Sequence[EvaluatePairsRequest]) -> Iterator[EvaluatePairsRequest]:
    """Copies of the rows, with their lines, by which results of one pair are joined."""
    for line, pair in enumerate(pairs, start=1):
        row = EvaluatePairsRequest()
        row.CopyFrom(pair)
        row.tags[LINE_TAG] = str(line)
        yield row


def _unjudged(pairs: Sequence[EvaluatePairsRequest]) -> Iterator[EvaluatePairsRequest]:
    for row in _numbered(pairs):
        row.judging_omitted = True
        row.text_metrics[:] = METRICS
        yield row


def _swept(
    pairs: Sequence[EvaluatePairsRequest], counts: Sequence[int] = COUNTS
) -> Iterator[EvaluatePairsRequest]:
    """A row for each pair and number of roles; the baselines are in the first."""
    for roles in counts:
        for row in _numbered(pairs):
            row.tags[COUNT_TAG] = str(roles)
            row.roles.objective_roles.extend(_fixed_roles()[1])
            row.roles.coarse_count, row.roles.fine_count = (roles + 1) // 2, roles // 2
            if roles == COUNTS[0]:
                row.baselines[:] = (_LLM, _MANUAL)
            yield row


def _manual(pairs: Sequence[EvaluatePairsRequest]) -> Iterator[EvaluatePairsRequest]:
    """A row for each pair, with a part of the subjective roles of ManualDRPE."""
    subjective, objective = _fixed_roles()
    for row in _numbered(pairs):
        row.tags[COUNT_TAG] = str(_MANUAL_COUNT)
        row.roles.objective_roles.extend(objective)
        row.roles.coarse_count = row.roles.fine_count = 0
        row.roles.subjective_roles.extend(
            Role(type=one.type, description=one.description, origin=ROLE_ORIGIN_SUBJECTIVE_COARSE)
            for one in subjective[:_MANUAL_COUNT]
        )
        row.roles.clustering_omitted = True
        yield row


def _fixed_roles() -> tuple[Sequence[Role], Sequence[Role]]:
    """The subjective roles of ManualDRPE, and the objective ones, which DRPE has too (section 4.1)."""
    fixed = role_set(FIXED_ROLES)
    return fixed[:-_OBJECTIVE_COUNT], fixed[-_OBJECTIVE_COUNT:]


def _measures(summary: Summary) -> Mapping[str, MeasureCorrelation]:
    return {one.measure: one for one in summary.pairs.correlations.measures}


def _pearson(summary: Summary, method: str, printed: str = "") -> Cell:
    """The correlation of the scores of equation 4, or of the shares of votes if some have no confidence.

    Either is over all judged pairs.
    """
    if _is_scored(summary, method):
        cell = _correlation(summary, f"{method}{_SCORE}", printed)
        return replace(cell, text=f"{cell.text}{_SCORE_MARK}")
    return _correlation(summary, method, printed)


def _correlation(summary: Summary, measure: str, printed: str = "") -> Cell:
    found = _measures(summary).get(measure)
    return estimate(found.pearson if found is not None else None, _DIGITS, printed)


def _is_scored(summary: Summary, method: str) -> bool:
    """Whether all judged pairs have the scores of equation 4, for each vote has a confidence."""
    found = _measures(summary)
    shares, scores = found.get(method), found.get(f"{method}{_SCORE}")
    return scores is not None and (shares is None or scores.pearson.count == shares.pearson.count)


def _table_1(metrics: Mapping[str, Summary], judges: Sequence[_Judge]) -> Table:
    rows = []
    for judge in judges:
        cells = [
            _pearson(judge.swept, method, printed)
            for method, printed in zip(
                (_BERTSCORE, _LLM, _MANUAL, f"roles k={COUNTS[0]}"), _TABLE_1[judge.data], strict=True
            )
        ]
        rows.append(Row([words(judge.name), *cells]))
    if not judges:
        for name, summary in metrics.items():
            cells = [_pearson(summary, _BERTSCORE, _TABLE_1[name][0])]
            cells += [number(None, _DIGITS, printed) for printed in _TABLE_1[name][1:]]
            rows.append(Row([words(f"{name}, without a model"), *cells]))
    rows += [
        Row([words(f"{name} (paper)"), *(number(float(value), _DIGITS) for value in values)], ruled=not index)
        for index, (name, values) in enumerate(_TABLE_1.items())
    ]
    return Table(
        "Table 1: Pearson correlation with people",
        [Column("Metrics"), *map(Column, ("BertScore", "LLM", "MDRPE", "DRPE"))],
        rows,
        name="table-1",
        notes=[
            f"DRPE has {COUNTS[0]} generated roles (section 4.1).",
            "BertScore compares with the article, by the encoder of the EmbeddingService.",
            f"{_SCORE_MARK.strip()}: scores of equation 4, for each vote has a confidence.",
            "Without it: shares of votes. Either is over all judged pairs.",
        ],
    )


def _methods(metrics: Mapping[str, Summary], judges: Sequence[_Judge]) -> Table:
    """Every method: correlations, accuracy, and the bias to position and length."""
    rows = [
        Row(_method_cells(name, one, summary), ruled=not index)
        for name, summary in metrics.items()
        for index, one in enumerate(summary.pairs.methods)
    ]
    notes = []
    for judge in judges:
        sections = {judge.name: judge.swept, f"{judge.name}, manual": judge.manual}
        if judge.cautioned is not None:
            sections[f"{judge.name}, cautioned"] = judge.cautioned
        for name, summary in sections.items():
            mine = [one for one in summary.pairs.methods if _is_judged(one, summary)]
            rows += [
                Row(_method_cells(name, one, summary), ruled=not index) for index, one in enumerate(mine)
            ]
            notes += [
                f"{name}: {times} pairs: {failure.rstrip('.')}."
                for failure, times in sorted(summary.pairs.role_failures.items())
            ]
    return Table(
        "Table 1: Every method, with the bias to position and length",
        [
            Column("Model"),
            Column("Method"),
            *map(Column, ("Pairs", "Roles", "Pearson", "Spearman", "Kendall", "Accuracy")),
            *(Column(name, "Williams") for name in ("baseline", "n", "t", "p")),
            *map(Column, ("First shown", "Orders differ", "Longer")),
        ],
        rows,
        name="table-1-methods",
        heads=2,
        notes=[
            "Roles: how many voted on a pair, the three objective ones included. Like roles are one.",
            "Williams: against the baseline of the largest Pearson correlation, over the n pairs of both.",
            "First shown: the share of votes for the text shown first; 0.5 without bias.",
            "Orders differ: the share of votes that change with the order.",
            "Longer: the share of preferences for the longer text, which is the better one in most pairs.",
            *(
                ["Cautioned: told that neither order nor length is a reason, which the paper does not say."]
                if any(judge.cautioned is not None for judge in judges)
                else []
            ),
            *notes,
        ],
    )


def _is_judged(one: PairMethodFigures, summary: Summary) -> bool:
    """Whether a model judges by the method, and all judged pairs have its scores."""
    if not one.method.startswith(("roles", _LLM, _MANUAL)):
        return False
    return not one.method.endswith(_SCORE) or _is_scored(summary, one.method.removesuffix(_SCORE))


def _method_cells(model: str, one: PairMethodFigures, summary: Summary) -> Sequence[Cell]:
    found = _measures(summary).get(one.method)
    difference = next(
        (
            difference
            for difference in summary.pairs.correlations.differences
            if difference.first_measure == one.method
        ),
        None,
    )
    labelled = one.HasField("accuracy")
    return [
        words(model),
        words(one.method),
        count(one.pair_count),
        words(_role_counts(one)),
        *(
            estimate(getattr(found, name) if found is not None else None, _DIGITS)
            for name in ("pearson", "spearman", "kendall")
        ),
        estimate(one.accuracy.accuracy if labelled else None, _DIGITS),
        *_williams(difference),
        *(
            estimate(getattr(one, share) if one.HasField(share) else None, _DIGITS)
            for share in ("first_presented_share", "inconsistent_share", "longer_share")
        ),
    ]


def _role_counts(one: PairMethodFigures) -> str:
    if not one.most_role_count:
        return ""
    least, most = one.least_role_count, one.most_role_count
    counted = str(most) if least == most else f"{least} to {most}"
    wanted = one.requested_role_count + _OBJECTIVE_COUNT
    return counted if least == wanted else f"{counted} of {wanted}"


def _williams(difference: CorrelationDifference | None) -> Sequence[Cell]:
    if difference is None:
        return [words("")] * 4
    known = difference.HasField("williams_p")
    return [
        words(difference.second_measure),
        count(difference.williams_t.count),
        number(difference.williams_t.value if difference.williams_t.HasField("value") else None, _DIGITS),
        probability(difference.williams_p if known else None, 4),
    ]


async def _section_4_1(session: Session, name: str, study: Study) -> Table:
    service = AlignmentServiceStub(session.client.channel)
    try:
        alphas = {
            choice: (await service.MeasureAgreement(agreement_request(study, choice)))
            .groups[0]
            .krippendorff_alpha
            for choice in (BEST, WORST)
        }
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    shares = {choice: vote_shares(study, choice) for choice in (BEST, WORST)}
    rows = [Row([words("pairs"), count(len(study.requests), _PAIRS.get(name, "")), words("")])]
    rows += [
        Row(
            [
                words(f"{system} chosen by two or more, in percent"),
                number(100 * shares[BEST][system], 0, _SYSTEMS[name].get(system, "")),
                number(100 * shares[WORST][system], 0),
            ]
        )
        for system in shares[BEST]
    ]
    rows.append(
        Row(
            [
                words("Krippendorff's alpha, MASI distance"),
                *(estimate(alphas[choice], 3, _ALPHAS[name][choice]) for choice in (BEST, WORST)),
            ]
        )
    )
    return Table(
        f"Section 4.1: The human study of {name}",
        [Column("Figure"), Column("best"), Column("worst")],
        rows,
        name="section-4-1" if name == "CNN" else f"section-4-1-{name.lower()}",
        notes=["Pairs and shares describe the data itself, which is no sample: they have no interval."],
        printed_note="In brackets: the number of the paper (pairs) or of the study.",
    )


def _figure_7(data: str, judges: Sequence[_Judge]) -> LineChart:
    # Without subjective roles the two methods are the same three roles.
    points = {
        f"DRPE, {judge.model}": {roles: (judge.swept, f"roles k={roles}") for roles in sorted(COUNTS[1:])}
        for judge in judges
    }
    for judge in judges:
        points[f"ManualDRPE, {judge.model}"] = {
            0: (judge.swept, "roles k=0"),
            _MANUAL_COUNT: (judge.manual, f"roles k={_MANUAL_COUNT}"),
            _OBJECTIVE_COUNT: (judge.swept, _MANUAL),
        }
    scored = all(_is_scored(*point) for line in points.values() for point in line.values())
    counts = sorted({roles for line in points.values() for roles in line})
    cells = {
        name: {
            roles: _correlation(summary, f"{method}{_SCORE}" if scored else method)
            for roles, (summary, method) in line.items()
        }
        for name, line in points.items()
    }
    notes = [
        "Scores of equation 4." if scored else "Shares of votes, for some votes have no confidence.",
        "The paper prints no values beside Table 1. ManualDRPE has three subjective roles at most.",
    ]
    for name, line in cells.items():
        pairs = {cell.judged for cell in line.values() if cell.judged}
        if pairs:
            least, most = min(pairs), max(pairs)
            notes.append(f"{name}: {most if least == most else f'{least} to {most}'} pairs a point.")
    shown = [cell for line in cells.values() for cell in line.values()]
    positive = all(cell.bounds is None or cell.bounds[0] >= 0 for cell in shown)
    return LineChart(
        "figure-7" if data == "CNN" else f"figure-7-{data.lower()}",
        counted(f"Figure 7: Effect of the number of roles, {data}", shown),
        list(map(str, counts)),
        {
            name: [line[roles].value if roles in line else None for roles in counts]
            for name, line in cells.items()
        },
        value_name="Pearson correlation with people",
        label_name="subjective roles (k)",
        limits=(0 if positive else -1, 1),
        notes=notes,
        bounds={
            name: [line[roles].bounds if roles in line else None for roles in counts]
            for name, line in cells.items()
        },
    )
