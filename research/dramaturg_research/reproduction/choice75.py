"""Choice-75 (Hou et al. 2023, arXiv 2309.11737): Tables 1, 3 and 4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, EvaluateDecisionsRequest, ModelChoice
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_SUCCEEDED,
    DecisionsRunOptions,
    RunSample,
    RunSpec,
)
from dramaturg.api.evaluation.v1.summary_pb2 import DecisionFigures, Summary
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as prompts
from dramaturg.tables.model import Cell, Column, Row, Table
from dramaturg_research.formats.choice75 import ALL, DEV, FORMATS, PAPER_COUNT, read_folder, select_rows
from dramaturg_research.reproduction.cells import NOT_SAMPLED, average, count, estimate, number, words
from dramaturg_research.reproduction.paper import DataError, Omission, Reproduction, data_folder
from dramaturg_research.reproduction.session import Session

ROLES = ("author", "alignment")
"""The roles that a gateway must serve."""

TITLE = "Choice-75: A Dataset on Decision Branching in Script Learning (Hou, Zhang and Callison-Burch 2023)"

_FORMAT_NAMES = dict(
    zip(FORMATS, ("Verb Phrase (Manual)", "Verb Phrase (Machine)", "User Profile"), strict=True)
)
_LEVELS = {"easy": "Easy", "medium": "Medium", "hard": "Hard", "either": "Either"}
_LEVELS_OF_TABLE_3 = {ALL: "All", "binary": "Binary", **_LEVELS}
_PROMPTS = ("naive", "story")
_PROMPT_VALUES = (prompts.DECISION_PROMPT_NAIVE, prompts.DECISION_PROMPT_STORY)
_DIGITS = 2
_MODELS_OF_PAPER = ("003", "Turbo")

# Table 1: easy, medium, hard, either.
_TABLE_1 = {
    "verb_phrase_manual": ("65", "76", "36", "65"),
    "verb_phrase_machine": ("46", "41", "22", "50"),
    "user_profile": ("53", "76", "17", "73"),
    ALL: ("164", "193", "75", "188"),
}
# Table 3 by format and prompt: (003, Turbo) for all, binary, easy, medium, hard, either.
_TABLE_3 = {
    ("verb_phrase_manual", "naive"): ".60 .63 .81 .82 .91 .92 .83 .80 .58 .67 .05 .14",
    ("verb_phrase_manual", "story"): ".63 .64 .86 .81 .95 .88 .87 .81 .69 .69 .02 .18",
    ("verb_phrase_machine", "naive"): ".56 .56 .77 .80 .79 .79 .77 .85 .69 .75 .21 .15",
    ("verb_phrase_machine", "story"): ".55 .55 .79 .80 .79 .82 .85 .81 .69 .75 .15 .13",
    ("user_profile", "naive"): ".61 .59 .72 .69 .78 .73 .73 .69 .47 .60 .40 .40",
    ("user_profile", "story"): ".50 .60 .57 .73 .58 .76 .60 .74 .40 .60 .37 .34",
    ("", "average"): ".57 .60 .75 .77 .80 .82 .77 .78 .59 .68 .20 .22",
}
# Appendix A: items and Fleiss' kappa.
_APPENDIX_A = (
    ("verb_phrase_manual", "125", "0.66"),
    ("verb_phrase_machine", "65", "0.49"),
    ("user_profile", "100", "0.55"),
    (ALL, "290", "0.59"),
)

# The answers that need no model.
_CONSTANT = {
    "always option 1": decision_pb2.CHOICE_OPTION_1,
    "always option 2": decision_pb2.CHOICE_OPTION_2,
    "always either": decision_pb2.CHOICE_EITHER,
}

Figures = Mapping[tuple[str, str, str, str], DecisionFigures]
"""Figures by model, prompt, format and level."""


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Tables 1, 3 and 4."""
    place = data_folder(folder, "choice75", FORMATS[0])
    reading = read_folder(place)
    if not reading.requests:
        raise DataError(f"{place}: has no scenarios")
    made = Reproduction(TITLE, _described(len(reading.requests), len(reading.skipped), place))
    made.tables.append(
        _table_1(await session.summarize(_constant_choices(_rows_of_table_1(reading.requests))))
    )
    dev = select_rows(reading, DEV, PAPER_COUNT, session.seed)
    if session.offline:
        summary = await session.summarize(_constant_choices(session.selected(dev)))
        models = tuple(_CONSTANT)
        made.omissions.append(
            Omission("Table 3 with models", "No model is named; the constant answers stand in their place.")
        )
    else:
        spec = RunSpec(
            models=session.models,
            decisions=DecisionsRunOptions(prompts=_PROMPT_VALUES, demonstrations=session.demonstrations),
        )
        if session.max_output_tokens is not None:
            spec.options.sampling.max_output_tokens = session.max_output_tokens
        summary = await session.run("decisions", spec, dev)
        models = tuple(session.models)
    figures = _by_setup(summary)
    made.tables += [
        _table_3(figures, models, summary),
        _table_3_coverage(figures, models),
        _table_4(figures, models),
        _appendix_a(),
    ]
    made.omissions += [
        Omission(
            "Table 3, text-davinci-003 and gpt-3.5-turbo",
            "Their answers were not released and the models are withdrawn; the printed accuracies stand "
            "beside those of this run. The released labels differ from the paper's by one.",
        ),
        Omission(
            "Table 4, accuracy of people",
            "The answers of people and the 290 sampled scenarios were not released; the printed accuracies "
            "stand beside those of this run on the whole development part.",
        ),
        Omission(
            "Appendix A, Fleiss' kappa",
            "The choices of the annotators were not released. For a sheet with choices of several "
            'annotators, "dramaturg research scenarios review" computes it.',
        ),
        Omission("Table 2 and Figures 1 to 3", "They are examples and diagrams, not results."),
    ]
    return made


def _described(scenarios: int, skipped: int, place: Path) -> str:
    left_out = f"; {skipped} invalid rows are left out" if skipped else ""
    return f"Data: {scenarios} scenarios below {place.name}/{left_out}."


def _rows_of_table_1(rows: Sequence[EvaluateDecisionsRequest]) -> Iterator[EvaluateDecisionsRequest]:
    """The rows that Table 1 counts: of the hand-written format the development part alone."""
    return (row for row in rows if row.tags["split"] == DEV or row.tags["format"] != FORMATS[0])


def _constant_choices(rows: Iterable[EvaluateDecisionsRequest]) -> Iterator[RunSample]:
    """The results of answers that are always the same."""
    for index, row in enumerate(rows):
        result = DecisionResult(decision=row.decision, gold=row.gold, tags=row.tags)
        result.choices.extend(
            ModelChoice(model=name, prompt=prompt, choice=choice, correct=choice == row.gold)
            for name, choice in _CONSTANT.items()
            for prompt in _PROMPT_VALUES
        )
        yield RunSample(index=index, line=index + 1, state=SAMPLE_STATE_SUCCEEDED, decision=result)


def _by_setup(summary: Summary) -> Figures:
    return {
        (one.model, one.prompt, one.format, one.level): one
        for one in summary.decisions.figures
        if not one.tags and one.order == "as-given"
    }


def _name(form: str) -> str:
    return _FORMAT_NAMES.get(form, "All")


def _accuracy(found: DecisionFigures | None) -> Cell:
    return estimate(found.accuracy.accuracy if found is not None else None, _DIGITS)


def _table_1(summary: Summary) -> Table:
    figures = _by_setup(summary)
    rows = []
    for form, printed in _TABLE_1.items():
        found = [figures.get((next(iter(_CONSTANT)), "naive", form, level)) for level in _LEVELS]
        items = [one.accuracy.item_count if one is not None else 0 for one in found]
        cells = [count(item, given) for item, given in zip(items, printed, strict=True)]
        rows.append(Row([words(_name(form)), *cells], ruled=form == ALL))
    return Table(
        "Table 1: Counts of scenarios in Choice-75",
        [Column("Format"), *map(Column, _LEVELS.values())],
        rows,
        name="table-1",
        notes=[
            "The counts of the hand-written format are of the development part, the others of both parts.",
            NOT_SAMPLED,
        ],
    )


def _table_3(figures: Figures, models: Sequence[str], summary: Summary) -> Table:
    columns = [Column("Group"), Column("Prompt")]
    for level in _LEVELS_OF_TABLE_3.values():
        columns += [Column(model, level) for model in models]
        columns += [Column(f"{model} (paper)", level) for model in _MODELS_OF_PAPER]
    rows, above = [], []
    for form in FORMATS:
        for prompt in _PROMPTS:
            printed = _printed(form, prompt)
            cells = []
            for level, (first, second) in zip(_LEVELS_OF_TABLE_3, printed, strict=True):
                cells += [_accuracy(figures.get((model, prompt, form, level))) for model in models]
                cells += [first, second]
            above.append(cells)
            rows.append(Row([words(_name(form)), words(prompt), *cells], ruled=prompt == _PROMPTS[0]))
    means = [average(column, _DIGITS) for column in zip(*above, strict=True)]
    step = len(models) + len(_MODELS_OF_PAPER)
    for place, pair in enumerate(_printed("", "average")):
        means[place * step + len(models) : (place + 1) * step] = pair
    rows.append(Row([words("Average"), words(""), *means], ruled=True))
    return Table(
        "Table 3: Accuracy by level of difficulty",
        columns,
        rows,
        name="table-3",
        heads=2,
        notes=[
            "Binary: easy, medium and hard together. Accuracies are over the development part.",
            f"Choices that abstain are left out: {_abstained(summary)}.",
            "Average: the mean of the rows above; of the paper, as printed.",
        ],
    )


def _table_3_coverage(figures: Figures, models: Sequence[str]) -> Table:
    """What each cell of Table 3 is over."""
    columns = [Column("Group"), Column("Prompt"), Column("Model")]
    columns += [
        Column(head, level) for level in _LEVELS_OF_TABLE_3.values() for head in ("n", "failed", "abstained")
    ]
    rows = []
    for form in FORMATS:
        for prompt in _PROMPTS:
            for model in models:
                cells = []
                for level in _LEVELS_OF_TABLE_3:
                    found = figures.get((model, prompt, form, level))
                    group = found.accuracy if found is not None else AccuracyGroup()
                    cells += [
                        count(group.item_count),
                        count(_failed(group)),
                        count(group.item_count - group.answered_count),
                    ]
                labels = map(words, (_name(form), prompt, model))
                rows.append(Row([*labels, *cells], ruled=(prompt, model) == (_PROMPTS[0], models[0])))
    return Table(
        "Table 3: Scenarios, failures and abstentions of each cell",
        columns,
        rows,
        name="table-3-coverage",
        heads=3,
        notes=[
            (
                "failed: refusals, also in prose, empty answers and answers cut off at the token cap. "
                "They are wrong choices of the accuracy."
            ),
            "abstained: answers without a clear choice, calls that failed. The accuracy leaves them out.",
        ],
    )


def _failed(group: AccuracyGroup) -> int:
    """How many answers are failures of the model, each of which has the label of its reason."""
    choices = {"", "option-1", "option-2", "either"}
    return sum(cell.count for cell in group.confusion if cell.predicted not in choices)


def _printed(form: str, prompt: str) -> list[tuple[Cell, Cell]]:
    values = [number(float(value), _DIGITS) for value in _TABLE_3[form, prompt].split()]
    return list(zip(values[::2], values[1::2], strict=True))


def _table_4(figures: Figures, models: Sequence[str]) -> Table:
    setups = [(model, prompt) for model in models for prompt in _PROMPTS]
    heads = ["people (paper)", *(f"{model}, {prompt}" for model, prompt in setups)]
    columns = [Column("Format"), *(Column(head, level) for level in _LEVELS.values() for head in heads)]
    rows = []
    for form in (*FORMATS, ALL):
        cells = []
        for level in _LEVELS:
            found = [figures.get((*setup, form, level)) for setup in setups]
            human = next(
                (one.human_accuracy for one in found if one and one.HasField("human_accuracy")), None
            )
            cells += [number(human, _DIGITS), *map(_accuracy, found)]
        rows.append(Row([words(_name(form)), *cells], ruled=form == ALL))
    return Table(
        "Table 4: Accuracy of people, beside models",
        columns,
        rows,
        name="table-4",
        notes=["The accuracy of people is the printed one, over 290 sampled scenarios."],
    )


def _appendix_a() -> Table:
    return Table(
        "Appendix A: Agreement of three annotators, as printed",
        [Column("Format"), Column("Scenarios"), Column("Fleiss' kappa")],
        [
            Row([words(_name(form)), words(items), words(kappa)], ruled=form == ALL)
            for form, items, kappa in _APPENDIX_A
        ],
        name="appendix-a",
        notes=["The choices of the annotators were not released."],
    )


def _abstained(summary: Summary) -> str:
    abstained = sum(summary.abstentions_by_reason.values())
    return f"{abstained} of {summary.judgement_count}"
