"""SimulBench (Jia et al. 2024, arXiv 2409.07641): Tables 1 to 4 and Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    DialogueScript,
    EvaluateDialoguesRequest,
    ModelPair,
    ReplyRating,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_SUCCEEDED,
    DialoguesRunOptions,
    RunSample,
    RunSpec,
)
from dramaturg.api.evaluation.v1.summary_pb2 import RatingFigures, ReplyPairFigures, Summary, SummaryOptions
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.datasets.json_lines import LineError, json_values
from dramaturg.plots.figures import BarChart, Bounds, counted
from dramaturg.tables.model import Cell, Column, Row, Table
from dramaturg_research.formats.simulbench import read_scripts, read_tasks
from dramaturg_research.reproduction.cells import NOT_SAMPLED, count, estimate, number, percents, words
from dramaturg_research.reproduction.paper import DataError, Omission, Reproduction, data_folder
from dramaturg_research.reproduction.session import Session

ROLES = ("author", "rating-judge", "pair-judge", "text-scorer", "alignment")
"""The roles that a gateway must serve."""

TITLE = "SimulBench: Evaluating Language Models with Creative Simulation Tasks (Jia et al. 2024)"
SCRIPTS, TASKS = "simulbench_all.jsonl", "simulbench_tasks.jsonl"
"""The released files."""

_COMPARED = 3
_LISTED = 10
_ENDS, _KINDS = ("Simplest", "Hardest"), ("stateless", "stateful")
_DIGITS = 2
_LAST, _FIRST, _LATER = "last_only", "first_challenge", "subsequent_challenge"
# Table 4: groups of the summary with their heads and the head above.
_GROUPS = (
    (_LAST, "Last Only", "Script Type"),
    (_FIRST, "First Chan", "Script Type"),
    (_LATER, "Subseq Chan", "Script Type"),
    (f"{_FIRST}, stateless", "State-less", "Simulation Type"),
    (f"{_FIRST}, stateful", "State-ful", "Simulation Type"),
    ("hard", "Hard", ""),
    ("all", "All", ""),
)
_TABLE_4 = {
    "GPT-4-Turbo": "9.29 8.62 8.13 8.45 8.75 8.29 8.74",
    "GPT-4o": "9.40 8.65 7.57 8.55 8.72 7.93 8.59",
    "LLaMA-3-70B-Chat": "9.32 8.13 7.98 7.74 8.40 8.03 8.61",
    "LLaMA-3-8B-Chat": "9.03 7.28 7.20 6.76 7.64 7.23 8.04",
    "Qwen1.5-110B-Chat": "9.16 8.25 7.25 7.92 8.48 7.59 8.30",
    "Qwen1.5-7B-Chat": "8.73 6.53 6.60 6.71 6.40 6.58 7.55",
    "Mixtral-8x22B-Instruct-v0.1": "8.99 7.62 6.83 7.75 7.53 7.10 7.95",
    "Mixtral-8x7B-Instruct-v0.1": "8.39 6.90 6.76 6.79 6.98 6.81 7.52",
    "Mixtral-7B-Instruct-v0.3": "8.37 6.41 6.14 6.76 6.16 6.23 7.19",
    "LLaMA-2-70B-Chat": "8.59 6.46 6.40 6.55 6.40 6.42 7.40",
    "LLaMA-2-13B-Chat": "8.48 5.84 6.11 6.0 5.74 6.02 7.13",
    "LLaMA-2-7B-Chat": "8.37 5.46 6.09 5.29 5.58 5.88 7.00",
}
# Section 2.4 and section 4.2: scripts by group.
_SCRIPT_COUNTS = ("225", "93", "182", "38", "55", "275", "500")
_HARD_COUNT = 275
_TABLE_1 = (
    ("GPT-4-turbo v.s. GPT-4o", "40.36", "35.64", "24.00", "16.36"),
    ("GPT-4-turbo v.s. Llama-3-70B-Chat", "38.91", "40.73", "20.36", "18.55"),
    ("GPT-4o v.s. Llama-3-70B-Chat", "35.64", "32.72", "31.64", "4.00"),
)
_TABLE_2 = {
    ("Simplest", "stateless"): (
        "Educational Content Creator, Prompt Enhancer, Virtual Veterinarian, Artificial Sommelier, Urban "
        "Myth Debunker, Startup Idea Generator, Wikipedia page, Fancy Title Generator, Historical Error "
        "Corrector, Etiquette Expert"
    ),
    ("Simplest", "stateful"): (
        "Dungeon Master, Text Based Adventure Game, Project Manager Simulator, JSON Data Store, SQL "
        "terminal, Virtual Detective, Space Station Simulation, Mars Colony Simulator, Virtual Space "
        "Mission Commander, Car Navigation System"
    ),
    ("Hardest", "stateless"): (
        "SVG designer, Cryptographer, Plagiarism Checker, Smart Domain Name Generator, Cryptographic "
        "System, Ascii Artist, Chemical Equation Balancer, English Pronunciation Helper, Prompt "
        "Generator, Diagram Generator, New Language Creator"
    ),
    ("Hardest", "stateful"): (
        "Chess Game Simulator, Redux State Manager, Excel Sheet, City Planner, Tic-Tac-Toe Game, Mars "
        "Rover Simulator, Chess Player, Japanese Kanji quiz machine, Python Interpreter, Gomoku player"
    ),
}
_ATTRIBUTES = ("toxicity", "severe toxicity", "identity attack", "insult", "profanity", "threat")
_TABLE_3 = {
    "Simulation Task": ("0.06", "0.00", "0.01", "0.02", "0.03", "0.01"),
    "Testing Script": ("0.07", "0.00", "0.02", "0.03", "0.04", "0.02"),
}
_JUDGES = ("rating-judge", "pair-judge")

Ratings = Mapping[tuple[str, str], RatingFigures]
"""Mean ratings by model and group."""


async def reproduce(session: Session, folder: Path) -> Reproduction:
    """Reproduces Tables 1 to 4 and Figures 2 and 3."""
    place = data_folder(folder, "simulbench", SCRIPTS)
    rows = _read(place / SCRIPTS)
    made = Reproduction(TITLE, f"Data: {len(rows)} test scripts of {place.name}/{SCRIPTS}.")
    released = await session.summarize(_printed_ratings(rows), _options(session))
    ratings: Ratings = {}
    if not session.offline:
        spec = RunSpec(models=session.models, dialogues=DialoguesRunOptions())
        summary = await session.run("ratings", spec, rows, _options(session), judge_roles=_JUDGES[:1])
        ratings = _by_group(summary)
        compared = await _compare(session, rows, summary, made)
        made.tables += [_table_1(compared), *_table_2(summary, session)]
    else:
        made.tables += [_table_1(None), _table_2_printed()]
        made.omissions.append(
            Omission("The rows of models in Tables 1, 2 and 4", "No model is named (--offline).")
        )
    await _score(session, place, rows, made)
    made.tables += [
        _table_4(ratings, session.models),
        _aggregation(_by_group(released)),
        _script_counts(_by_group(released)),
    ]
    made.figures += _figures(ratings, session.models)
    made.omissions += [
        Omission(
            "Table 4, the twelve models of the paper",
            "Their responses and ratings were not released; the printed means stand beside those of this "
            "run. Hard and All follow from the printed means of the subsets (table-4-aggregation).",
        ),
        Omission(
            "Table 1, the comparisons of the paper",
            "They were not released. This run compares its own three models of the highest mean rating.",
        ),
        Omission(
            "Section 4.3, people who check ratings",
            'It needs people: "research ratings sample" draws ratings for them and reads their answers.',
        ),
    ]
    return made


def _read(file: Path) -> Sequence[EvaluateDialoguesRequest]:
    try:
        scripts = read_scripts(_values(file))
    except LineError as error:
        raise DataError(str(error)) from error
    if scripts.skipped or not scripts.requests:
        first = next((f"line {line}: {reason}" for line, reason in scripts.skipped), "there are no rows")
        raise DataError(f"{file}: {first}")
    return scripts.requests


def _values(file: Path) -> Sequence[tuple[int, Any]]:
    return list(json_values(file))


def _options(session: Session) -> SummaryOptions:
    options = session.options()
    # The paper left such scripts out before it released the others (section 2.4).
    options.aced_kept = True
    return options


def _by_group(summary: Summary) -> Ratings:
    return {(one.model, one.group): one for one in summary.dialogues.ratings if not one.tags}


def _printed_ratings(rows: Sequence[EvaluateDialoguesRequest]) -> Iterator[RunSample]:
    """The released scripts, each rated by every model of the paper as its kind is on average."""
    means = {model: list(map(float, printed.split())) for model, printed in _TABLE_4.items()}
    stateless = dialogue_pb2.SIMULATION_KIND_STATELESS
    for index, row in enumerate(rows):
        column = {
            dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY: 0,
            dialogues_pb2.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE: 2,
        }.get(row.script.subset, 3 if row.script.task.kind == stateless else 4)
        result = DialogueResult(
            script=DialogueScript(id=row.script.id, task=row.script.task, subset=row.script.subset),
            tags=row.tags,
        )
        for model, values in means.items():
            result.replies.add(model=model)
            result.ratings.append(
                ReplyRating(model=model, judge="paper", rating=Rating(value=values[column]))
            )
        yield RunSample(index=index, line=index + 1, state=SAMPLE_STATE_SUCCEEDED, dialogue=result)


async def _compare(
    session: Session, rows: Sequence[EvaluateDialoguesRequest], ratings: Summary, made: Reproduction
) -> Summary | None:
    """Compares the models of the highest mean rating on the hard part (section 4.1)."""
    best = [entry.model for entry in ratings.leaderboard if entry.rank][:_COMPARED]
    if len(best) < 2:
        made.omissions.append(Omission("Table 1", "It compares models, and fewer than two have ratings."))
        return None
    hard = [row for row in session.selected(rows) if row.tags["subset"] != _LAST]
    if not hard:
        made.omissions.append(Omission("Table 1", "No script within the limit is of the hard part."))
        return None
    pairs = [ModelPair(first_model=first, second_model=second) for first, second in combinations(best, 2)]
    spec = RunSpec(models=best, dialogues=DialoguesRunOptions(pairs=pairs, ratings_omitted=True))
    return await session.run("pairs", spec, hard, judge_roles=_JUDGES[1:], limited=False)


def _table_1(summary: Summary | None) -> Table:
    """The comparisons of the run above those of the paper, which stand alone without a run."""
    pairs = [one for one in summary.dialogues.pairs if one.group == "hard"] if summary is not None else []
    rows = [_pair_row(one) for one in pairs]
    rows += [
        Row(
            [
                words(f"{name} (paper)"),
                *(number(float(value), _DIGITS) for value in values),
                count(_HARD_COUNT),
            ],
            ruled=not index,
        )
        for index, (name, *values) in enumerate(_TABLE_1)
    ]
    return Table(
        "Table 1: Comparisons on the hard part, in percent",
        [Column("Pair of Models"), *map(Column, ("Win", "Tie", "Lose", "Win - Lose", "n"))],
        rows,
        name="table-1",
        notes=[
            "A win counts only if the reply is preferred in both orders.",
            f"Comparisons without a judgement are left out: {sum(one.abstained_count for one in pairs)}.",
        ],
    )


def _pair_row(one: ReplyPairFigures) -> Row:
    found = (one.win_rate, one.tie_rate, one.lose_rate, one.difference)
    return Row(
        [
            words(f"{one.first_model} v.s. {one.second_model}"),
            *(percents(part, _DIGITS) for part in found),
            count(one.win_rate.count),
        ]
    )


def _table_2_printed() -> Table:
    return Table(
        "Table 2: The simplest and the hardest tasks, as printed",
        [Column("Tasks"), Column("Stateless Tasks"), Column("Stateful Tasks")],
        [
            Row([words(end), *(words(_TABLE_2[end, kind]) for kind in _KINDS)], ruled=end == _ENDS[1])
            for end in _ENDS
        ],
        name="table-2",
        heads=3,
    )


def _table_2(summary: Summary, session: Session) -> Iterator[Table]:
    for group, name, title in (("hard", "table-2", "the hard part"), ("all", "table-2-all", "all scripts")):
        rows = []
        for end in _ENDS:
            cells = [words(end)]
            for kind in _KINDS:
                hardest = [
                    f"{one.task} ({one.mean.value:.{_DIGITS}f})"
                    for one in summary.dialogues.tasks
                    if (one.group, one.simulation_kind) == (group, kind)
                ]
                listed = min(_LISTED, len(hardest) // 2)
                ordered = hardest if end == _ENDS[1] else hardest[::-1]
                cells += [words(", ".join(ordered[:listed])), words(_TABLE_2[end, kind])]
            rows.append(Row(cells, ruled=end == _ENDS[1]))
        yield Table(
            f"Table 2: The simplest and the hardest tasks over {title}",
            [
                Column("Tasks"),
                Column("this run", "Stateless Tasks"),
                Column("paper", "Stateless Tasks"),
                Column("this run", "Stateful Tasks"),
                Column("paper", "Stateful Tasks"),
            ],
            rows,
            name=name,
            heads=5,
            notes=[
                f"In parentheses: the mean rating over scripts and models ({', '.join(session.models)}).",
                f"The table {name}-ratings has the intervals.",
            ],
        )
        yield Table(
            f"Table 2: The mean ratings of the tasks over {title}",
            [Column("Task"), Column("Simulation type"), Column("Mean rating")],
            [
                Row([words(one.task), words(one.simulation_kind), estimate(one.mean, _DIGITS)])
                for one in summary.dialogues.tasks
                if one.group == group
            ],
            name=f"{name}-ratings",
            heads=2,
        )


async def _score(
    session: Session, place: Path, rows: Sequence[EvaluateDialoguesRequest], made: Reproduction
) -> None:
    """Scores tasks and scripts for attributes where text scorers are registered (section 4.4)."""
    scorers = [] if session.offline else await session.client.list_judges("text-scorer")
    scored: dict[tuple[str, str], Cell] = {}
    names: list[str] = list(_ATTRIBUTES)
    if scorers and (place / TASKS).exists():
        judges = [JudgeSelection(role="text-scorer", judge=one.name) for one in scorers]
        spec = RunSpec(dialogues=DialoguesRunOptions(ratings_omitted=True))
        texts = list(_scored_texts(place / TASKS, rows, judges))
        summary = await session.run("attributes", spec, texts)
        for one in summary.dialogues.attributes:
            name = (one.attribute or one.judge).replace("_", " ").lower()
            names += [] if name in names else [name]
            scored[one.model, name] = estimate(one.mean, _DIGITS)
    else:
        made.omissions.append(
            Omission(
                "Table 3, toxicity",
                "It needs text scorers, and the gateway has none registered for the role text-scorer; the "
                "paper used the Perspective API. The printed means are shown.",
            )
        )
    made.tables.append(
        Table(
            "Table 3: Mean scores of tasks and scripts",
            [Column("Attributes"), *map(Column, names)],
            [
                Row(
                    [
                        words(text),
                        *(
                            Cell(cell.text, cell.value, printed=given)
                            for name, given in zip(
                                names, (*printed, *[""] * (len(names) - len(printed))), strict=True
                            )
                            for cell in [scored.get((text, name), number(None, _DIGITS))]
                        ),
                    ]
                )
                for text, printed in _TABLE_3.items()
            ],
            name="table-3",
        )
    )


def _scored_texts(
    file: Path, rows: Sequence[EvaluateDialoguesRequest], judges: Sequence[JudgeSelection]
) -> Iterator[EvaluateDialoguesRequest]:
    """The texts of tasks and scripts as given replies, which text scorers score."""
    for task in read_tasks(_values(file), {}).requests:
        row = EvaluateDialoguesRequest(replies_scored=True, ratings_omitted=True, judges=judges)
        row.script.id = task.task.id
        row.script.task.CopyFrom(task.task)
        row.script.utterances.add(speaker=dialogue_pb2.SPEAKER_USER, text=task.task.description)
        row.replies.add(model="Simulation Task", text=task.task.description)
        yield row
    for one in rows:
        row = EvaluateDialoguesRequest(
            script=one.script, replies_scored=True, ratings_omitted=True, judges=judges
        )
        text = "\n\n".join(utterance.text for utterance in one.script.utterances)
        row.replies.add(model="Testing Script", text=text)
        yield row


def _table_4(ratings: Ratings, models: Sequence[str]) -> Table:
    rows = [
        Row([words(model), *(_mean(ratings.get((model, group))) for group, _, _ in _GROUPS)])
        for model in models
    ]
    rows += [
        Row(
            [words(f"{model} (paper)"), *(number(float(value), _DIGITS) for value in printed.split())],
            ruled=not index,
        )
        for index, (model, printed) in enumerate(_TABLE_4.items())
    ]
    return Table(
        "Table 4: Mean ratings from 1 to 10",
        [Column("Models"), *(Column(name, above) for _, name, above in _GROUPS)],
        rows,
        name="table-4",
        notes=[
            "Simulation types are over the first challenging turns (section 4.2.1).",
            *_rating_notes(ratings, models),
        ],
    )


def _rating_notes(ratings: Ratings, models: Sequence[str]) -> Iterator[str]:
    for model in models:
        found = ratings.get((model, "all"))
        if found is not None and found.mean.count < found.script_count:
            yield f"{model}: {found.mean.count} of {found.script_count} replies have a rating."


def _aggregation(released: Ratings) -> Table:
    """Means over groups that follow from the printed means of their parts."""
    columns = [place for place, (group, _, _) in enumerate(_GROUPS) if group in (_FIRST, "hard", "all")]
    rows = []
    for model, line in _TABLE_4.items():
        printed = line.split()
        cells = [_mean(released.get((model, _GROUPS[place][0])), printed[place]) for place in columns]
        rows.append(Row([words(model), *cells]))
    return Table(
        "Table 4: Columns that follow from the printed means of their parts",
        [Column("Models"), *(Column(_GROUPS[place][1]) for place in columns)],
        rows,
        name="table-4-aggregation",
        notes=[
            "Each released script is rated as its kind is on average in the paper, and aggregated as a run.",
        ],
    )


def _script_counts(released: Ratings) -> Table:
    model = next(iter(_TABLE_4))
    cells = [
        count(released.get((model, group), RatingFigures()).script_count, printed)
        for (group, _, _), printed in zip(_GROUPS, _SCRIPT_COUNTS, strict=True)
    ]
    return Table(
        "Sections 2.4 and 4.2: Test scripts by kind",
        [Column("Scripts"), *(Column(name, above) for _, name, above in _GROUPS)],
        [Row([words("released"), *cells])],
        name="section-4-2",
        notes=[NOT_SAMPLED],
    )


def _mean(found: RatingFigures | None, printed: str = "") -> Cell:
    return estimate(found.mean if found is not None else None, _DIGITS, printed)


def _figures(ratings: Ratings, models: Sequence[str]) -> Iterator[BarChart]:
    figures = (
        ("figure-2", "Figure 2: Mean ratings of models", ("all", "hard")),
        (
            "figure-3a",
            "Figure 3(a): Mean ratings by simulation type",
            (f"{_FIRST}, stateless", f"{_FIRST}, stateful"),
        ),
        ("figure-3b", "Figure 3(b): Mean ratings by script type", (_LAST, _FIRST, _LATER)),
    )
    heads = {group: name for group, name, _ in _GROUPS}
    places = {group: place for place, (group, _, _) in enumerate(_GROUPS)}
    for name, title, groups in figures:
        series: dict[str, list[float | None]] = {}
        bounds: dict[str, Bounds] = {}
        own: list[Cell] = []
        for group in groups:
            cells = [_mean(ratings.get((model, group))) for model in models]
            own += cells
            mine = [cell.value for cell in cells]
            bounds[heads[group]] = [cell.bounds for cell in cells]
            printed = [float(line.split()[places[group]]) for line in _TABLE_4.values()]
            series[heads[group]] = [*mine, *printed]
        labels = [*models, *(f"{model} (paper)" for model in _TABLE_4)]
        yield BarChart(
            name,
            counted(title, own),
            labels,
            series,
            value_name="mean rating",
            limits=(1, 10),
            bounds=bounds,
            printed_from=len(models),
        )
