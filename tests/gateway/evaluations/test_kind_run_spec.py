"""What a run sets in its rows, and what it leaves as they have it."""

from __future__ import annotations

from typing import Any

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.evaluation.v1 import decisions_pb2, graphs_pb2, scripts_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    EvaluateDialoguesRequest,
    ModelPair,
    SimulateDialogueRequest,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import (
    DecisionsRunOptions,
    DialoguesRunOptions,
    GraphsRunOptions,
    PairsRunOptions,
    RunSpec,
    ScenariosRunOptions,
    ScriptsRunOptions,
    SimulationsRunOptions,
)
from dramaturg.api.evaluation.v1.scenarios_pb2 import WriteScenariosRequest
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    DECISION_PROMPT_NAIVE,
    DECISION_PROMPT_STORY,
    SCENARIO_FORM_USER_PROFILE,
    ScenarioDemonstration,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2 import PRESENTATION_ORDER_BOTH, ComparisonRules
from gateway.evaluations.kinds import run_kind
from gateway.evaluations.scripts.authorship import writing_options


def apply_spec(row: Any, spec: RunSpec, repeat_offset: int = 0) -> None:
    run_kind(spec).apply_spec(row, spec, repeat_offset)


def test_an_empty_spec_changes_nothing() -> None:
    rows = {
        "scripts": EvaluateScriptsRequest(mechanism=scripts_pb2.MECHANISM_SINGLE_JUDGE),
        "pairs": EvaluatePairsRequest(baselines=["rouge-l"]),
        "graphs": EvaluateGraphsRequest(reduce=True, models=["a"]),
        "decisions": EvaluateDecisionsRequest(models=["a"], prompts=[DECISION_PROMPT_STORY]),
        "dialogues": EvaluateDialoguesRequest(models=["a", "b"], ratings_omitted=True),
        "simulations": SimulateDialogueRequest(user_model="a", dialogue_index=2),
        "scenarios": WriteScenariosRequest(models=["a"], count=3),
    }
    for name, row in rows.items():
        before = row.SerializeToString(deterministic=True)
        spec = RunSpec()
        getattr(spec, name).SetInParent()
        apply_spec(row, spec)
        assert type(row).FromString(before) == _without_empty_options(row), name


def _without_empty_options(row: Any) -> Any:
    if hasattr(row, "options") and row.options == JudgeOptions():
        row.ClearField("options")
    return row


def test_judges_replace_those_of_their_roles() -> None:
    row = EvaluateScriptsRequest(
        judges=[JudgeSelection(role="critic", judge="a"), JudgeSelection(role="execute", judge="b")]
    )
    spec = RunSpec(
        scripts=ScriptsRunOptions(),
        judges=[
            JudgeSelection(role="critic", judge="c"),
            JudgeSelection(role="critic", judge="d"),
            # Writes before anything is evaluated.
            JudgeSelection(role="author", judge="e"),
        ],
    )
    apply_spec(row, spec)
    assert [(one.role, one.judge) for one in row.judges] == [
        ("execute", "b"),
        ("critic", "c"),
        ("critic", "d"),
    ]


def test_options_are_set_member_by_member() -> None:
    row = EvaluateDecisionsRequest(options=JudgeOptions(model="row", repeat_index=3))
    spec = RunSpec(decisions=DecisionsRunOptions(), options=JudgeOptions(sampling=Sampling(top_p=0.5)))
    apply_spec(row, spec)
    assert row.options == JudgeOptions(model="row", repeat_index=3, sampling=Sampling(top_p=0.5))
    apply_spec(
        row, RunSpec(decisions=DecisionsRunOptions(), options=JudgeOptions(model="run")), repeat_offset=2
    )
    assert (row.options.model, row.options.repeat_index) == ("run", 5)


def test_a_seed_leaves_the_temperature_as_it_would_be() -> None:
    row = EvaluateDecisionsRequest()
    apply_spec(row, RunSpec(decisions=DecisionsRunOptions(), seed=7))
    assert row.options.sampling == Sampling(temperature=0, seed=7)
    warm = EvaluateDecisionsRequest(options=JudgeOptions(sampling=Sampling(top_p=0.9)))
    apply_spec(warm, RunSpec(decisions=DecisionsRunOptions(), seed=7))
    assert warm.options.sampling == Sampling(top_p=0.9, seed=7)
    fixed = EvaluateDecisionsRequest(options=JudgeOptions(sampling=Sampling(seed=1)))
    apply_spec(fixed, RunSpec(decisions=DecisionsRunOptions(), seed=7))
    assert fixed.options.sampling.seed == 1


def test_models_are_those_of_the_row_and_of_the_run() -> None:
    row = EvaluateDecisionsRequest(models=["a", "b"])
    apply_spec(row, RunSpec(decisions=DecisionsRunOptions(), models=["b", "c", "c"]))
    assert list(row.models) == ["a", "b", "c"]


def test_scripts_options() -> None:
    row = EvaluateScriptsRequest(
        gold_answer=Script(steps=[Step(text="x")]),
        gold_answer_source=scripts_pb2.GOLD_ANSWER_SOURCE_GIVEN,
    )
    options = ScriptsRunOptions(
        mechanism=scripts_pb2.MECHANISM_SINGLE_JUDGE,
        gold_answer_source=scripts_pb2.GOLD_ANSWER_SOURCE_NONE,
    )
    apply_spec(row, RunSpec(scripts=options, models=["a"]))
    assert row.mechanism == scripts_pb2.MECHANISM_SINGLE_JUDGE
    assert row.gold_answer_source == scripts_pb2.GOLD_ANSWER_SOURCE_NONE
    assert not row.HasField("gold_answer")


def test_options_of_the_others() -> None:
    pair = EvaluatePairsRequest(baselines=["a"])
    rules = ComparisonRules(forced_choice=True)
    options = PairsRunOptions(order=PRESENTATION_ORDER_BOTH, baselines=["b"], rules=rules)
    apply_spec(pair, RunSpec(pairs=options))
    assert (pair.order, list(pair.baselines)) == (PRESENTATION_ORDER_BOTH, ["b"])
    assert pair.rules == rules

    graphs = EvaluateGraphsRequest(task=graphs_pb2.GRAPH_TASK_GENERATE)
    apply_spec(graphs, RunSpec(graphs=GraphsRunOptions(reduce=True)))
    assert (graphs.task, graphs.reduce) == (graphs_pb2.GRAPH_TASK_GENERATE, True)

    decisions = EvaluateDecisionsRequest(prompts=[DECISION_PROMPT_STORY])
    choices = DecisionsRunOptions(
        prompts=[DECISION_PROMPT_NAIVE], option_order=decisions_pb2.OPTION_ORDER_BOTH
    )
    apply_spec(decisions, RunSpec(decisions=choices))
    assert list(decisions.prompts) == [DECISION_PROMPT_NAIVE]
    assert decisions.option_order == decisions_pb2.OPTION_ORDER_BOTH

    dialogues = EvaluateDialoguesRequest()
    pairs = [ModelPair(first_model="a", second_model="b")]
    apply_spec(dialogues, RunSpec(dialogues=DialoguesRunOptions(pairs=pairs), models=["a", "b"], seed=5))
    assert list(dialogues.pairs) == pairs
    assert list(dialogues.models) == ["a", "b"]
    assert dialogues.sampling == Sampling(seed=5)


def test_dialogues_are_judged_and_replied_to_apart() -> None:
    row = EvaluateDialoguesRequest(options=JudgeOptions(repeat_index=1), sampling=Sampling(top_p=0.3))
    spec = RunSpec(dialogues=DialoguesRunOptions(), options=JudgeOptions(model="judge"), seed=5)
    apply_spec(row, spec, repeat_offset=2)
    assert row.options == JudgeOptions(
        model="judge", repeat_index=3, sampling=Sampling(temperature=0, seed=5)
    )
    assert row.sampling == Sampling(top_p=0.3, seed=5)


def test_writing_has_its_own_sampling_and_the_runs_repeat() -> None:
    spec = RunSpec(
        scripts=ScriptsRunOptions(writing_sampling=Sampling(temperature=0.7)),
        options=JudgeOptions(repeat_index=1, model="judge"),
        seed=3,
    )
    assert writing_options(spec, "a", 4) == JudgeOptions(
        model="a", repeat_index=5, sampling=Sampling(temperature=0.7, seed=3)
    )


def test_the_run_names_the_models_of_simulations() -> None:
    row = SimulateDialogueRequest(simulator_model="row", max_turn_count=3, dialogue_index=1)
    options = SimulationsRunOptions(user_model="user", user_sampling=Sampling(temperature=0.5))
    apply_spec(row, RunSpec(simulations=options, seed=7), repeat_offset=2)
    assert (row.simulator_model, row.user_model, row.max_turn_count) == ("row", "user", 3)
    assert row.user_sampling == Sampling(temperature=0.5, seed=7)
    assert row.simulator_sampling == Sampling(seed=7)
    assert (row.dialogue_index, row.options.repeat_index) == (1, 2)


def test_a_seed_leaves_scenarios_the_temperature_of_their_author() -> None:
    row = WriteScenariosRequest(count=3, demonstrations=[ScenarioDemonstration(scenario="of the row")])
    shown = ScenarioDemonstration(scenario="of the run")
    options = ScenariosRunOptions(
        form=SCENARIO_FORM_USER_PROFILE, duplicate_threshold=0.8, demonstrations=[shown]
    )
    apply_spec(row, RunSpec(scenarios=options, seed=7, models=["a"]), repeat_offset=1)
    assert (row.form, row.count, row.duplicate_threshold) == (SCENARIO_FORM_USER_PROFILE, 3, 0.8)
    assert (list(row.models), list(row.demonstrations)) == (["a"], [shown])
    assert row.options == JudgeOptions(sampling=Sampling(seed=7), repeat_index=1)
