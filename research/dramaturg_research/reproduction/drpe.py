"""DRPE (Wu et al. 2023, arXiv 2303.15078): Table 1 and Figure 7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import grpc

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.correlation_pb2 import CorrelationDifference, MeasureCorrelation
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import PairsRunOptions, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import PairMethodFigures, Summary
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_SUBJECTIVE_COARSE, Role
from dramaturg.datasets.json_lines import LineError, json_document
from dramaturg.judge.role_sets import FIXED_ROLES, role_set
from dramaturg.plots.figures import LineChart
from dramaturg.results.pairs import COUNT_TAG, LINE_TAG
from dramaturg.service.errors import from_rpc_error
from dramaturg.tables.model import Cell, Column, Row, Table
from dramaturg_research.formats.goyal import BEST, WORST, Study, agreement_request, read_study, vote_shares
from dramaturg_research.reproduction.cells import count, estimate, number, probability, words
from dramaturg_research.reproduction.paper import DataError, Omission, Reproduction, data_folder
from dramaturg_research.reproduction.session import Session

ROLES = ("roles", "pair-judge", "alignment")
"""The roles that a gateway must serve."""

TITLE = "Large Language Models are Diverse Role-Players for Summarization Evaluation (Wu et al. 2023)"
HUMAN_STUDY = "cnn_human.json"
"""The released human study."""
COUNTS = (5, 0, 2, 4, 6)
"""The numbers of generated roles: that of section 4.1, then those of Figure 7."""
METRICS = (
    *("rouge-1", "rouge-2", "rouge-l", "bleu", "meteor", "chrf"),
    *("embedding", "bertscore", "bertscore-precision", "bertscore-recall"),
)
"""The text metrics."""

_DIGITS = 2
_MANUAL_COUNTS = (0, 2)
_OBJECTIVE_COUNT = 3
_SCORE = " (DRPEScore)"
_LLM, _MANUAL, _BERTSCORE = "llm", "fixed-roles", "bertscore"
# Table 1: BertScore, LLM, MDRPE, DRPE.
_TABLE_1 = {"CNN": ("0.55", "0.58", "0.75", "0.90"), "XSum": ("0.57", "0.62", "0.73", "0.87")}
_SYSTEMS = {"brio": "36", "t0": "8", "gpt3": "58"}
_ALPHAS = {BEST: "0.05", WORST: "0.11"}


class _Judge(NamedTuple):
    """The runs of one model."""

    model: str
    swept: Summary
    manual: Summary
    cautioned: Summary
    """Told that neither order nor length is a reason."""


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Table 1 and Figure 7."""
    place = data_folder(folder, "drpe", HUMAN_STUDY)
    study = _read(place / HUMAN_STUDY, session.seed)
    made = Reproduction(
        TITLE,
        f"Data: {len(study.articles)} articles of {place.name}/{HUMAN_STUDY}, {len(study.requests)} pairs of "
        f"a best and a worst summary. The order of the texts is drawn with the seed {session.seed}.",
    )
    pairs = session.selected(study.requests)
    judges = [
        _Judge(
            model,
            await session.run(model, _spec(model), list(_swept(pairs)), limited=False),
            await session.run(f"{model}-manual", _spec(model), list(_manual(pairs)), limited=False),
            await session.run(
                f"{model}-cautioned",
                _spec(model, cautioned=True),
                list(_swept(pairs, COUNTS[:1])),
                limited=False,
            ),
        )
        for model in session.models
    ]
    if judges:
        baselines = judges[0].swept
    else:
        unjudged = list(_unjudged(pairs))
        baselines = await session.run("metrics", RunSpec(pairs=PairsRunOptions()), unjudged, limited=False)
    made.tables += [
        _table_1(baselines, judges),
        _methods(baselines, judges),
        await _section_4_1(session, study),
    ]
    if judges:
        made.figures.append(_figure_7(judges))
    else:
        made.omissions.append(
            Omission("Table 1, LLM, MDRPE and DRPE; Figure 7", "No model is named (--offline).")
        )
    made.omissions += [
        Omission(
            "Table 1, the printed correlations",
            "text-davinci-003 is withdrawn, no outputs were released, and the paper does not state the order "
            "of the texts.",
        ),
        Omission(
            "Table 1, BertScore and MoverScore",
            "MoverScore is not among the metrics. BERTScore has the encoder of the EmbeddingService; that of "
            "the paper is not stated. Metrics compare with the article, for the study has no references.",
        ),
        Omission("Table 1, XSum", "The paper gives no number of pairs, and the data is not read here."),
        Omission(
            "Figure 7, ManualDRPE for 4 and 6 roles",
            "The paper names three subjective roles of ManualDRPE. 0, 2 and 3 of them are shown.",
        ),
    ]
    return made


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


def _spec(model: str, *, cautioned: bool = False) -> RunSpec:
    spec = RunSpec(
        judges=[JudgeSelection(role=role, model=model) for role in ROLES[:2]], pairs=PairsRunOptions()
    )
    # The votes of equation 1: one of the two texts, and no word against length or order.
    spec.pairs.rules.forced_choice = True
    spec.pairs.rules.bias_caution_omitted = not cautioned
    return spec


def _unjudged(pairs: Sequence[EvaluatePairsRequest]) -> Iterator[EvaluatePairsRequest]:
    for pair in pairs:
        row = _copy(pair)
        row.judging_omitted = True
        row.text_metrics[:] = METRICS
        yield row


def _swept(
    pairs: Sequence[EvaluatePairsRequest], counts: Sequence[int] = COUNTS
) -> Iterator[EvaluatePairsRequest]:
    """A row for each pair and number of roles; baselines and metrics are in the first."""
    for line, pair in enumerate(pairs, start=1):
        for roles in counts:
            row = _copy(pair)
            row.tags.update({LINE_TAG: str(line), COUNT_TAG: str(roles)})
            row.roles.coarse_count, row.roles.fine_count = (roles + 1) // 2, roles // 2
            if roles == COUNTS[0]:
                row.baselines[:] = (_LLM, _MANUAL)
                row.text_metrics[:] = METRICS
            yield row


def _manual(pairs: Sequence[EvaluatePairsRequest]) -> Iterator[EvaluatePairsRequest]:
    """A row for each pair and number of the subjective roles of ManualDRPE."""
    fixed = role_set(FIXED_ROLES)
    subjective, objective = fixed[:-_OBJECTIVE_COUNT], fixed[-_OBJECTIVE_COUNT:]
    for line, pair in enumerate(pairs, start=1):
        for roles in _MANUAL_COUNTS:
            row = _copy(pair)
            row.tags.update({LINE_TAG: str(line), COUNT_TAG: str(roles)})
            row.roles.objective_roles.extend(objective)
            row.roles.coarse_count = row.roles.fine_count = 0
            row.roles.subjective_roles.extend(
                Role(type=one.type, description=one.description, origin=ROLE_ORIGIN_SUBJECTIVE_COARSE)
                for one in subjective[:roles]
            )
            row.roles.clustering_omitted = True
            yield row


def _copy(pair: EvaluatePairsRequest) -> EvaluatePairsRequest:
    row = EvaluatePairsRequest()
    row.CopyFrom(pair)
    return row


def _measures(summary: Summary) -> Mapping[str, MeasureCorrelation]:
    return {one.measure: one for one in summary.pairs.correlations.measures}


def _pearson(summary: Summary, method: str, printed: str = "") -> Cell:
    """The correlation of the scores of equation 4, or else of the shares of votes."""
    found = _measures(summary)
    for name in (f"{method}{_SCORE}", method):
        if name in found and found[name].pearson.HasField("value"):
            return estimate(found[name].pearson, _DIGITS, printed)
    return number(None, _DIGITS, printed)


def _table_1(baselines: Summary, judges: Sequence[_Judge]) -> Table:
    rows = []
    for judge in judges:
        cells = [
            _pearson(judge.swept, method, printed)
            for method, printed in zip(
                (_BERTSCORE, _LLM, _MANUAL, f"roles k={COUNTS[0]}"), _TABLE_1["CNN"], strict=True
            )
        ]
        rows.append(Row([words(f"CNN, {judge.model}"), *cells]))
    if not judges:
        cells = [_pearson(baselines, _BERTSCORE, _TABLE_1["CNN"][0])]
        cells += [number(None, _DIGITS, printed) for printed in _TABLE_1["CNN"][1:]]
        rows.append(Row([words("CNN, without a model"), *cells]))
    rows += [
        Row([words(f"{name} (paper)"), *(number(float(value), _DIGITS) for value in values)])
        for name, values in _TABLE_1.items()
    ]
    return Table(
        "Table 1: Pearson correlation with people",
        [Column("Metrics"), *map(Column, ("BertScore", "LLM", "MDRPE", "DRPE"))],
        rows,
        name="table-1",
        notes=[
            f"DRPE has {COUNTS[0]} generated roles (section 4.1). Texts are shown in both orders.",
            "BertScore compares with the article, by the encoder of the EmbeddingService.",
            "Scores are those of equation 4 if the endpoint has log-probabilities, else shares of votes.",
        ],
    )


def _methods(baselines: Summary, judges: Sequence[_Judge]) -> Table:
    """Every method: correlations, accuracy, and the bias to position and length."""
    rows = [
        Row(_method_cells("", one, baselines))
        for one in baselines.pairs.methods
        if not one.tags and not _is_judged(one)
    ]
    for judge in judges:
        sections = (
            (judge.model, judge.swept),
            (f"{judge.model}, manual", judge.manual),
            (f"{judge.model}, cautioned", judge.cautioned),
        )
        for name, summary in sections:
            mine = [one for one in summary.pairs.methods if not one.tags and _is_judged(one)]
            rows += [
                Row(_method_cells(name, one, summary), ruled=not index) for index, one in enumerate(mine)
            ]
    return Table(
        "Table 1: Every method, with the bias to position and length",
        [
            Column("Model"),
            Column("Method"),
            *map(Column, ("Pairs", "Pearson", "Spearman", "Kendall", "Accuracy", "Williams t", "p")),
            *map(Column, ("First shown", "Orders differ", "Longer")),
        ],
        rows,
        name="table-1-methods",
        heads=2,
        notes=[
            "Williams t compares a method of roles with the baseline of the largest Pearson correlation.",
            "First shown: the share of votes for the text shown first; 0.5 without bias.",
            "Orders differ: the share of votes that change with the order.",
            "Cautioned: the prompt says that neither order nor length is a reason; the paper's does not.",
            "Longer: the share of preferences for the longer text, which is the better one in most pairs.",
        ],
    )


def _is_judged(one: PairMethodFigures) -> bool:
    """Whether a model judges by the method."""
    return one.method.startswith(("roles", _LLM, _MANUAL))


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
        *(
            estimate(getattr(found, name) if found is not None else None, _DIGITS)
            for name in ("pearson", "spearman", "kendall")
        ),
        estimate(one.accuracy.accuracy if labelled else None, _DIGITS),
        *_williams(difference),
        *(
            number(getattr(one, name) if one.HasField(name) else None, _DIGITS)
            for name in ("first_presented_share", "inconsistent_share", "longer_share")
        ),
    ]


def _williams(difference: CorrelationDifference | None) -> Sequence[Cell]:
    if difference is None:
        return [words(""), words("")]
    known = difference.HasField("williams_p")
    return [
        estimate(difference.williams_t, _DIGITS),
        probability(difference.williams_p if known else None, 4),
    ]


async def _section_4_1(session: Session, study: Study) -> Table:
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
    rows = [Row([words("pairs"), count(len(study.requests), "81"), words("")])]
    rows += [
        Row(
            [
                words(f"{system} chosen by two or more, in percent"),
                number(100 * shares[BEST][system], 0, _SYSTEMS.get(system, "")),
                number(100 * shares[WORST][system], 0),
            ]
        )
        for system in shares[BEST]
    ]
    rows.append(
        Row(
            [
                words("Krippendorff's alpha, MASI distance"),
                *(estimate(alphas[choice], 3, _ALPHAS[choice]) for choice in (BEST, WORST)),
            ]
        )
    )
    return Table(
        "Section 4.1: The human study",
        [Column("Figure"), Column("best"), Column("worst")],
        rows,
        name="section-4-1",
        printed_note="In brackets: the number of the paper (pairs) or of the study.",
    )


def _figure_7(judges: Sequence[_Judge]) -> LineChart:
    counts = sorted({*COUNTS[1:], *_MANUAL_COUNTS, _OBJECTIVE_COUNT})
    series: dict[str, list[float | None]] = {}
    for judge in judges:
        swept = [_pearson(judge.swept, f"roles k={roles}").value for roles in counts]
        manual = {roles: _pearson(judge.manual, f"roles k={roles}").value for roles in _MANUAL_COUNTS}
        manual[_OBJECTIVE_COUNT] = _pearson(judge.swept, _MANUAL).value
        series[f"DRPE, {judge.model}"] = swept
        series[f"ManualDRPE, {judge.model}"] = [manual.get(roles) for roles in counts]
    return LineChart(
        "figure-7",
        "Figure 7: Effect of the number of roles",
        list(map(str, counts)),
        series,
        value_name="Pearson correlation with people",
        label_name="subjective roles (k)",
        notes=["The paper prints no values beside Table 1. ManualDRPE has three subjective roles at most."],
    )
