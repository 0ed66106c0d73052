"""Counts ABSEval again from tasks that this module writes and the answers of scripted models alone."""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from tests.support.drawn import drawn_bars, drawn_cells, drawn_intervals, drawn_lines
from tests.support.openai_server import Answer, Body
from tests.support.recounts import check_mean, draw, shown, student
from tests.support.reproductions import check_outputs, read_csv, reproduce_with

pytestmark = pytest.mark.timeout(540)

TASKS = 24
TOPICS = ("Health", "Pets and Animals", "Home and Garden")
MODELS = {"llama-7b": "7b", "vicuna-13b": "13b", "mixtral-8x7b": "40b", "qwen-72b": "70b", "llama-70b": "70b"}
"""The models with their sizes in Figure 5."""
KEPT = {"llama-7b": 500, "vicuna-13b": 300, "mixtral-8x7b": 700, "qwen-72b": 900, "llama-70b": 100}
"""How much of the reference the scripts of each model have, in thousandths."""
PAPER = {"7b": 0.11, "13b": 0.12, "40b": 0.13, "70b": 0.14}
"""The paper's rate of each size by each criterion in Figure 5."""
CRITERIA = {
    "NM": "no_missing_steps",
    "NR": "no_redundant_steps",
    "ND": "no_duplicate_steps",
    "EX": "executable",
    "SC": "satisfies_constraints",
    "CG": "completes_goal",
    "OC": "order_correct",
}
VARIANTS = {
    "base": ("agents", "pooled"),
    "no-gold-answer": ("agents", "none"),
    "direct-gold-answer": ("agents", "direct"),
    "single-judge": ("single", "none"),
    "single-judge-with-gold-answer": ("single", "pooled"),
}
"""Who judges, and from what the gold answer is made."""
FAULTS = {
    "Missing steps": "NM",
    "Redundant steps": "NR",
    "Duplicate steps": "ND",
    "Satisfy Constraint": "SC",
    "Complete": "CG",
    "Step order": "OC",
}


def topic(task: int) -> str:
    """The topic of a task."""
    return TOPICS[task % 3]


def reference(task: int) -> list[str]:
    """CoScript's script for a task."""
    return [f"Take part {letter} of goal {task}." for letter in "ABCDEF"]


def write_tasks(file: Path) -> None:
    """Writes the tasks in the form of CoScript. After each comes one that a limit leaves out.

    What the worst model writes is much like the scripts of those that are left out.
    """
    file.parent.mkdir(parents=True)
    with file.open("w") as opened:
        for task in range(TASKS):
            row = {
                "id": task,
                "Abstract Goal": f"Reach goal {task}",
                "Specific Goal": f"Reach goal {task} without a key",
                "Constraint": "without a key",
                "Script": [f"{place}. {step}" for place, step in enumerate(reference(task), start=1)],
                "Category": topic(task),
            }
            other = {
                "id": f"other {task}",
                "Abstract Goal": "Stay",
                "Specific Goal": f"Stay {task} without a key",
                "Script": [
                    f"{place}. Begin as llama-70b with goal {letter}."
                    for place, letter in enumerate("ABCDEF", start=1)
                ],
                "Category": "Rest",
            }
            opened.write(json.dumps(row) + "\n" + json.dumps(row | other) + "\n")


def write_recovered(folder: Path) -> None:
    """Writes values of the paper's figures in the form in which they were recovered."""
    rates, sizes = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], list(PAPER.values())
    figures = {
        "fig6_line_plot.svg": {"metrics": list(CRITERIA), "ABSEval": rates, "Single Agent": rates},
        "fig4_radar_gold_answer.svg": {"with gold": rates, "without gold": rates},
        "fig_pie_topics": {"Health": 3, "total": 3},
        "fig5_heat_size_by_metric": {"order": list(PAPER), **dict.fromkeys(CRITERIA, sizes)},
    }
    folder.mkdir()
    (folder / "fig6_fig4_recovered.json").write_text(json.dumps(figures))
    topics = {name: {"llama-7b": 0.5} for name in TOPICS}
    (folder / "fig9_heatmap_topic_by_model_recovered.json").write_text(json.dumps(topics))


def fate(task: int, model: str) -> str:
    """What comes of asking a model for a script."""
    place = draw("fate", task, model)
    return "refusal" if place < 60 else "refused" if place < 90 else "empty" if place < 110 else "script"


def script(task: int, model: str) -> list[str]:
    """The steps that a model writes: some of the reference in their order, and own ones."""
    kept = [step for step in reference(task) if draw("kept", step, model) < KEPT[model]]
    return [f"Begin as {model} with goal {task}.", *kept, *["Look around."] * (draw("more", task, model) % 3)]


def verdict(mechanism: str, gold: str, criterion: str, text: str) -> str:
    """What a judge finds of a script: pass, fail or unsure; or ?, if its answer cannot be read."""
    group = "single" if mechanism == "single" else "critic" if criterion in {"NM", "NR", "ND"} else criterion
    if group in {"CG", "OC", "SC"}:
        group = "execute"
    if group in {"execute", "EX"}:
        gold = "none"  # These agents see no gold answer.
    if draw("unreadable", mechanism, gold, group, text) < 25:
        return "?"
    place = draw(mechanism, gold, criterion, text)
    least = 600 if criterion == "NM" else 250
    return "fail" if place < least else "unsure" if place > 970 else "pass"


def label(task: int, model: str, criterion: str) -> bool:
    """What a person finds of a script."""
    found = verdict("agents", "pooled", criterion, "\n".join(script(task, model)))
    return (found == "fail") == (draw("person", task, model, criterion) < 200)


class Server:
    """All models. Keeps the scripts that were judged with a pooled gold answer in the run of the faults."""

    def __init__(self) -> None:
        self.judged = set[tuple[int, str]]()
        self.usable = Counter[str]()
        """The requests with an answer of use."""

    def __call__(self, body: Body) -> Answer:
        answer = self._answer(body)
        self.usable[json.dumps(body)] += answer.text[:1] in {"1", "{"}
        return answer

    def _answer(self, body: Body) -> Answer:
        texts = shown(body)
        if body["model"] != "judge":
            return self._write(int(re.findall(r"Reach goal (\d+)", texts[0])[0]), body["model"])
        prompt = texts[1]
        task = int(re.findall(r"Reach goal (\d+)", prompt)[0])
        schema = body["response_format"]["json_schema"]["schema"]["properties"]
        if "considerations" in schema:
            kind = "pooled" if "[BEGIN example" in prompt else "direct"
            return _json(considerations="None.", steps=[f"The {kind} step for goal {task}.", "End."])
        block = re.findall(r"\[BEGIN candidate \w+\]\n(.*?)\n\[END candidate", prompt, re.DOTALL)[0]
        text = "\n".join(re.sub(r"^Step \d+: ", "", line) for line in block.splitlines())
        self.judged.add((task, text))
        gold = next((kind for kind in ("pooled", "direct") if f"The {kind} step" in prompt), "none")
        named = {short: name for short, name in CRITERIA.items() if name in schema}
        mechanism = "single" if len(named) == len(CRITERIA) else "agents"
        answer: dict[str, Any] = {
            name: _any(part) for name, part in schema.items() if name not in named.values()
        }
        for short, name in named.items():
            found = verdict(mechanism, gold, short, text)
            if found == "?":
                return Answer("It depends.")
            answer[name] = _criterion(found, schema[name]["properties"])
        return _json(**answer)

    @staticmethod
    def _write(task: int, model: str) -> Answer:
        match fate(task, model):
            case "refusal":
                return Answer("I'm sorry, but I can't help with that.")
            case "refused":
                return Answer(refusal="No.")
            case "empty":
                return Answer("")
        return Answer("\n".join(f"{n}. {step}" for n, step in enumerate(script(task, model), start=1)))


def _json(**members: Any) -> Answer:
    return Answer(json.dumps(members))


def _any(part: dict[str, Any]) -> Any:
    return [] if part["type"] == "array" else "Read."


def _criterion(found: str, members: dict[str, Any]) -> dict[str, Any]:
    """The answer to a criterion, with its members."""
    if "constraints" in members:
        one = {"constraint": 1, "reason": "Read.", "steps": [], "verdict": found}
        return {"constraints": [one], "verdict": found}
    if "steps" in members:
        return {"steps": [{"step": 1, "reason": "Read.", "verdict": found}], "verdict": found}
    return {"reason": "Read.", "findings": [], "verdict": found}


def found(variant: str, task: int, model: str, criterion: str) -> bool | None:
    """Whether a script passes a criterion; None: an abstention. A script that there is not fails all."""
    if fate(task, model) != "script":
        return False
    said = verdict(*VARIANTS[variant], criterion, "\n".join(script(task, model)))
    return None if said in {"unsure", "?"} else said == "pass"


class Reproduced:
    """A reproduction."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        write_tasks(folder / "coscript" / "test_data.json")
        write_recovered(folder / "abseval")
        labels = folder / "labels.csv"
        with labels.open("w", newline="") as opened:
            writer = csv.writer(opened)
            writer.writerow(["item", "criterion", "annotator", "label"])
            for task, model, (short, name) in product(range(TASKS), MODELS, CRITERIA.items()):
                passed = "pass" if label(task, model, short) else "fail"
                writer.writerow([f"{task}/{model}", name, "a", passed])
        self.server = Server()
        options = [part for model in MODELS for part in ("--model", model)]
        options += ["--judge-model", "judge", "--labels", str(labels), "--perturbations"]
        options += ["--limit", str(TASKS)]
        finished, _ = reproduce_with(self.server, "abseval", folder, self.out, *options)
        assert finished.code == 0, finished.err
        check_outputs(self.out, "abseval")
        # The runs share calls: no answer of use is bought twice.
        assert max(self.server.usable.values()) == 1
        # A gold answer is made once of all scripts of a task, by which faults are judged, and once directly.
        assert sum("considerations" in one for one in self.server.usable) == 2 * TASKS


def test_labels_of_no_script_are_refused_before_a_call(tmp_path: Path) -> None:
    write_tasks(tmp_path / "coscript" / "test_data.json")
    labels = tmp_path / "labels.csv"
    labels.write_text("item,criterion,annotator,label\nanother/llama-7b,executable,a,pass\n")
    options = ("--model", "llama-7b", "--judge-model", "judge", "--labels", str(labels))
    finished, server = reproduce_with(Server(), "abseval", tmp_path, tmp_path / "out", *options)
    assert finished.code == 2
    assert "no label is of a script of this run: an item is TASK/MODEL" in finished.err
    assert not server.calls


def test_a_dry_run_with_ablations_and_a_judge_estimates_all_runs(tmp_path: Path) -> None:
    write_tasks(tmp_path / "coscript" / "test_data.json")
    options = ("--model", "llama-7b", "--judge-model", "judge", "--ablations", "--dry-run", "--limit", "3")
    finished, server = reproduce_with(Server(), "abseval", tmp_path, tmp_path / "out", *options)
    assert finished.code == 0, finished.err
    calls = [int(one) for one in re.findall(r"^model calls +(\d+)$", finished.out, re.MULTILINE)]
    # A script, three agents and a gold answer; one judge; three variants of agents and two of one judge, of
    # which three take a gold answer.
    assert calls == [3 * 5, 3 * 2, 3 * (5 + 3 * 3 + 2 + 3)]
    assert not server.calls


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """A reproduction."""
    return Reproduced(tmp_path_factory.mktemp("abseval"))


def outcomes(
    criterion: str,
    variant: str = "base",
    *,
    tasks: Iterable[int] = range(TASKS),
    models: Iterable[str] = MODELS,
) -> list[bool]:
    """Whether scripts pass a criterion; abstentions are left out."""
    every = (found(variant, task, model, criterion) for task, model in product(tasks, models))
    return [one for one in every if one is not None]


def ranks(values: Sequence[float]) -> list[float]:
    """The ranks of models by their values; equal ones share the mean of their ranks."""
    return list(stats.rankdata([-round(one, 9) for one in values]))


def check_rate(row: Mapping[str, str], column: str, passed: Sequence[bool], of: int) -> None:
    told = [float(row[column + part]) for part in ("", " (judged)", " (of)")]
    assert told == pytest.approx([statistics.fmean(passed), len(passed), of]), (column, row)


def by(out: Path, table: str) -> dict[str, dict[str, str]]:
    """The rows of a table by their first column."""
    rows = read_csv(out / f"{table}.csv")
    return {next(iter(row.values())): row for row in rows}


def mean_of_rates(model: str, variant: str = "base") -> float:
    return statistics.fmean(statistics.fmean(outcomes(one, variant, models=[model])) for one in CRITERIA)


def test_table_5_has_the_rates_and_two_ranks(reproduced: Reproduced) -> None:
    table = by(reproduced.out, "table-5")
    for criterion in CRITERIA:
        for model in MODELS:
            passed = outcomes(criterion, models=[model])
            check_mean(table[model], criterion, passed, (0, 1), of=TASKS)
        check_rate(table["ALL"], criterion, outcomes(criterion), TASKS * len(MODELS))
    pooled = [
        statistics.fmean(one for c in CRITERIA for one in outcomes(c, models=[model])) for model in MODELS
    ]
    for column, expected in (
        ("Rank", ranks([mean_of_rates(one) for one in MODELS])),
        ("Pooled rank", ranks(pooled)),
    ):
        assert [float(table[model][column]) for model in MODELS] == expected
    assert [table[model]["Size"] for model in MODELS] == ["7B", "13B", "8x7B", "72B", "70B"]


def test_figures_10_and_11_have_the_same_rates(reproduced: Reproduced) -> None:
    everyone = [statistics.fmean(outcomes(criterion)) for criterion in CRITERIA]
    assert drawn_bars(reproduced.out / "figure-10.svg")[:7] == pytest.approx(everyone, abs=1e-4)
    for criterion in CRITERIA:
        rates = sorted((statistics.fmean(outcomes(criterion, models=[one])) for one in MODELS), reverse=True)
        bars = drawn_bars(reproduced.out / f"figure-11-{criterion.lower()}.svg")
        assert bars[: len(MODELS)] == pytest.approx(rates, abs=1e-4)


def test_figures_5_and_9_pool_models_by_size_and_tasks_by_topic(reproduced: Reproduced) -> None:
    table, cells = by(reproduced.out, "figure-5"), list[float]()
    for size in ("7b", "13b", "40b", "70b"):
        models = [model for model, one in MODELS.items() if one == size]
        assert table[size]["Models"].split(", ") == models
        for criterion in CRITERIA:
            passed = outcomes(criterion, models=models)
            check_rate(table[size], criterion, passed, TASKS * len(models))
            cells.append(statistics.fmean(passed))
        assert table[size]["NM (paper)"] == str(PAPER[size])
    # Beside the models of the run stand those of the paper.
    cells += [rate for rate in PAPER.values() for _ in CRITERIA]
    assert drawn_cells(reproduced.out / "figure-5.svg") == pytest.approx(cells, abs=0.0051)
    cells = []
    for model, name in product(MODELS, sorted(TOPICS)):
        tasks = [task for task in range(TASKS) if topic(task) == name]
        cells.append(
            statistics.fmean(one for c in CRITERIA for one in outcomes(c, tasks=tasks, models=[model]))
        )
    assert sorted(drawn_cells(reproduced.out / "figure-9.svg")) == pytest.approx(sorted(cells), abs=0.0051)
    assert drawn_bars(reproduced.out / "figure-2-run.svg") == pytest.approx([TASKS / 3] * 3, abs=1e-3)


def test_figure_12_has_quarters_of_the_scripts_that_there_are(reproduced: Reproduced) -> None:
    rows, lines = read_csv(reproduced.out / "figure-12.csv"), defaultdict[str, list[float]](list)
    ends = defaultdict[str, list[tuple[float, float] | None]](list)
    written = [key for key in product(range(TASKS), MODELS) if fate(*key) == "script"]
    assert sum(int(row["Scripts"]) for row in rows) == len(written)
    columns = {
        "Order Correct": "OC",
        "Executable": "EX",
        "No Redundant Steps": "NR",
        "Satisfy Constraint": "SC",
    }
    for row in rows:
        least, _, most = row["Steps"].partition(" to ")
        group = [key for key in written if int(least) <= len(script(*key)) <= int(most or least)]
        assert int(row["Scripts"]) == len(group)
        for column, criterion in columns.items():
            verdicts = {key: found("base", *key, criterion) for key in group}
            passed = {key: one for key, one in verdicts.items() if one is not None}
            # The scripts of one task are not independent.
            tasks = [task for task, _ in passed]
            check_mean(row, column, list(passed.values()), (0, 1), clusters=tasks, of=len(group))
            lines[column].append(statistics.fmean(passed.values()))
            ends[column].append(student(list(passed.values()), 0, 1, tasks))
    assert len(rows) == 4
    drawn = drawn_lines(reproduced.out / "figure-12.svg")
    assert drawn == [pytest.approx(lines[column], abs=1e-4) for column in columns]
    intervals = [pytest.approx(one, abs=1e-3) for column in columns for one in ends[column] if one]
    assert drawn_intervals(reproduced.out / "figure-12.svg") == intervals


def test_figure_6_ranks_the_models_by_each_metric(reproduced: Reproduced) -> None:
    table = by(reproduced.out, "figure-6")
    expected = {
        "agents": ranks([mean_of_rates(model) for model in MODELS]),
        "single-judge": ranks([mean_of_rates(model, "single-judge") for model in MODELS]),
    }
    for metric in ("rouge-1", "rouge-2", "rouge-l"):
        scores = [
            statistics.fmean(
                rouge(script(task, model), reference(task), metric[-1])
                for task in range(TASKS)
                if fate(task, model) == "script"
            )
            for model in MODELS
        ]
        expected[metric] = ranks(scores)
    # The more of the reference a script has, the nearer is its meaning.
    expected["bertscore"] = ranks([KEPT[model] for model in MODELS])
    columns = [column for column in table["qwen-72b"] if "Model Name" not in column]
    told = {column: [float(table[model][column]) for model in MODELS] for column in columns}
    for column, order in expected.items():
        assert told[column] == order, column
    correlations = by(reproduced.out, "figure-6-correlations")
    for metric, against in product(told, ("agents", "single-judge")):
        if metric not in {"agents", "single-judge"}:
            row = correlations[metric]
            tau = stats.kendalltau(told[metric], told[against]).statistic
            assert float(row[f"{against}: Kendall's tau"]) == pytest.approx(tau)
            rho = stats.spearmanr(told[metric], told[against]).statistic
            assert float(row[f"{against}: Spearman's rho"]) == pytest.approx(rho)


def rouge(steps: Sequence[str], other: Sequence[str], kind: str) -> float:
    """F1 of the n-grams of words, or of the longest common subsequence (Lin 2004)."""
    written, wanted = (re.findall(r"[a-z0-9]+", " ".join(one).lower()) for one in (steps, other))
    if kind == "l":
        row = [0] * (len(wanted) + 1)
        for word in written:
            above = list(row)
            for place, one in enumerate(wanted, start=1):
                row[place] = above[place - 1] + 1 if one == word else max(above[place], row[place - 1])
        return 2 * row[-1] / (len(written) + len(wanted))
    grams = [
        Counter(zip(*(words[place:] for place in range(int(kind))), strict=False))
        for words in (written, wanted)
    ]
    return 2 * (grams[0] & grams[1]).total() / (grams[0].total() + grams[1].total())


def agreement(variant: str, criterion: str, other: Callable[[int, str, str], bool | None]) -> list[bool]:
    """Where both have a verdict: whether they are equal."""
    pairs = [
        (found(variant, task, model, criterion), other(task, model, criterion))
        for task, model in product(range(TASKS), MODELS)
    ]
    return [one == two for one, two in pairs if one is not None and two is not None]


def test_variants_are_compared_with_the_base_and_with_people(reproduced: Reproduced) -> None:
    base, people = by(reproduced.out, "ablations"), by(reproduced.out, "ablations-people")
    to_base, to_people = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for variant, criterion in product(VARIANTS, CRITERIA):
        check_rate(base[variant], f"share that meets: {criterion}", outcomes(criterion, variant), 120)
        equal = agreement(variant, criterion, lambda *key: found("base", *key))
        told = float(base[variant][f"agreement with base: {criterion}"])
        to_base[variant, criterion] = statistics.fmean(equal)
        assert told == pytest.approx(to_base[variant, criterion])
        assert base[variant][f"agreement with base: {criterion} (judged)"] == str(len(equal))
        right = agreement(variant, criterion, label)
        check_rate(people[variant], criterion, right, 120)
        to_people[variant, criterion] = statistics.fmean(right)
    figures = {
        "figure-4": ("single-judge-with-gold-answer", "single-judge"),
        "figure-7": ("base", "single-judge"),
    }
    for (figure, variants), (end, values) in product(
        figures.items(), (("ablations", to_base), ("people", to_people))
    ):
        wanted = [one for one in variants if end == "people" or one != "base"]
        bars = drawn_bars(reproduced.out / f"{figure}-{end}.svg")
        expected = [values[key] for key in product(wanted, CRITERIA)]
        assert bars == pytest.approx(expected, abs=1e-4), figure
    # Figure 4 has one judge with and without a gold answer.
    figure_4 = (reproduced.out / "figure-4-people.svg").read_text()
    assert "single-judge-with-gold-answer" in figure_4
    assert "no-gold-answer" not in figure_4.replace("with-gold-answer", "")


def test_tables_2_and_3_are_the_errors_and_accuracies_against_people(reproduced: Reproduced) -> None:
    agents, single, *_ = read_csv(reproduced.out / "table-2.csv")
    for row, mechanism, variant in (
        (agents, "ABSEval", "base"),
        (single, "Single-LLM", "single-judge"),
    ):
        wrong = [not one for criterion in CRITERIA for one in agreement(variant, criterion, label)]
        assert (row["Mechanism"], row["LLM"]) == (mechanism, "judge")
        assert float(row["MSE"]) == pytest.approx(statistics.fmean(wrong))
        assert row["n"] == str(len(wrong))
    pooled, direct, *_ = table = read_csv(reproduced.out / "table-3.csv")
    printed = {row["Gold answer generation"]: row for row in table}
    assert printed["Answer Synthesize (paper)"]["NM"] == "0.895"
    for criterion in ("NM", "NR", "ND"):
        check_rate(pooled, criterion, agreement("base", criterion, label), 120)
        check_rate(direct, criterion, agreement("direct-gold-answer", criterion, label), 120)


def fault(task: int, steps: Sequence[str]) -> str:
    """The category of a perturbed script; empty: it is unchanged."""
    whole = reference(task)
    if list(steps) == whole:
        return ""
    if sorted(steps) == sorted(whole):
        return "Step order"
    added = list((Counter(steps) - Counter(whole)).elements())
    if not added:
        return "Missing steps" if len(steps) == len(whole) - 1 else "Complete"
    if len(added) > 1:
        return "Complete"
    if "key" in added[0]:
        return "Satisfy Constraint"
    return "Duplicate steps" if f"of goal {task}." in added[0] else "Redundant steps"


def test_table_4_has_the_shares_of_faults_that_are_found(reproduced: Reproduced) -> None:
    table = by(reproduced.out, "table-4")
    own = {(task, "\n".join(script(task, model))) for task, model in product(range(TASKS), MODELS)}
    texts = defaultdict[str, list[tuple[int, str]]](list)
    for task, text in reproduced.server.judged - own:
        texts[fault(task, text.split("\n"))].append((task, text))
    assert len(texts[""]) == TASKS

    def fails(criterion: str, scripts: Iterable[tuple[int, str]]) -> list[bool]:
        verdicts = (verdict("agents", "pooled", criterion, text) for _, text in scripts)
        return [one == "fail" for one in verdicts if one not in {"unsure", "?"}]

    for category, criterion in FAULTS.items():
        row = table[category]
        assert row["Scripts"] == str(len(texts[category]))
        check_rate(row, "Acc.", fails(criterion, texts[category]), len(texts[category]))
        check_rate(row, "False alarms", fails(criterion, texts[""]), TASKS)
        sound = {task for task, text in texts[""] if verdict("agents", "pooled", criterion, text) == "pass"}
        passed = fails(criterion, [one for one in texts[category] if one[0] in sound])
        assert float(row["Acc. if passed unchanged"]) == pytest.approx(statistics.fmean(passed))
        assert row["Acc. if passed unchanged (judged)"] == str(len(passed))
    printed = [table[category]["Acc. (paper)"] for category in FAULTS]
    assert printed == ["0.84", "0.96", "0.96", "0.85", "0.92", "0.84"]
    note = f"The gold answer of {TASKS} of {TASKS} scripts is that of the run"
    assert note in (reproduced.out / "table-4.md").read_text()
