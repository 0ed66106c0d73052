"""Samples of each kind of evaluation: abstentions, refusals, two prompts, both orders, a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from dramaturg.api.common.v1 import decision_pb2, error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1, CHOICE_OPTION_2, Decision
from dramaturg.api.common.v1.dialogue_pb2 import (
    SIMULATION_KIND_STATEFUL,
    SPEAKER_USER,
    SimulationTask,
    Utterance,
)
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_UNAVAILABLE
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_REFUSED,
    ABSTAIN_REASON_TIMED_OUT,
    ABSTAIN_REASON_UNSPECIFIED,
    Assessment,
    Verdict,
)
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    SCRIPT_SUBSET_LAST_ONLY,
    DialogueResult,
    DialogueScript,
    ReplyRating,
    SimulatedDialogue,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import GRAPH_TASK_GENERATE, GraphsResult, MeasuredGraph
from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_SUCCEEDED,
    RunSample,
    SampleError,
)
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WrittenScenario
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions, TagGrouping
from dramaturg.api.evaluation.v1.texts_pb2 import TextResult, TextsResult
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as authoring
from dramaturg.api.generation.v1.authoring_decisions_pb2 import SCENARIO_FORM_VERB_PHRASE
from dramaturg.api.graph.v1.graph_service_pb2 import (
    EdgeCounts,
    EdgeMeasures,
    EdgeScore,
    MeasureEditDistanceResponse,
)
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Ballot, ComparePairResponse, RoleVote
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.judge.verdicts import abstained, failed, passed, scored
from tests.support.results import scripts_result
from tests.support.texts import CLEAR, POLITE


def dialogue(name: str, ratings: Mapping[str, Sequence[float | None]]) -> DialogueResult:
    """A script with the ratings of a panel for each model; None abstains."""
    return DialogueResult(
        script=DialogueScript(id=name),
        ratings=[
            ReplyRating(
                model=model,
                judge=f"judge {place}",
                rating=Rating(abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED)
                if value is None
                else Rating(value=value),
            )
            for model, values in ratings.items()
            for place, value in enumerate(values)
        ],
    )


# A script that both models ace, a panel whose judges differ, and one that abstains.
DIALOGUES = [
    dialogue("aced", {"a": [10, 10], "b": [10, 10]}),
    dialogue("split", {"a": [4, 8], "b": [2, 3]}),
    dialogue("silent", {"a": [9, None], "b": [None, None]}),
    dialogue("low", {"a": [3, 4], "b": [1, 1]}),
]
# Both prompts and both orders, one choice of which abstains.
CHOICES: dict[tuple[authoring.DecisionPrompt.ValueType, bool], list[bool | None]] = {
    (authoring.DECISION_PROMPT_NAIVE, False): [True, True, False, True],
    (authoring.DECISION_PROMPT_NAIVE, True): [True, False, False, None],
    (authoring.DECISION_PROMPT_STORY, False): [False, False, False, True],
}


def _answer(right: bool | None) -> dict[str, Any]:
    if right is None:
        return {"abstain_reason": verdict_pb2.ABSTAIN_REASON_UNPARSABLE}
    return {"choice": 1 if right else 2, "correct": right}


DECISIONS = [
    DecisionResult(
        decision=Decision(id=str(place)),
        gold=decision_pb2.CHOICE_OPTION_1,
        choices=[
            ModelChoice(
                model="a",
                prompt=prompt,
                options_swapped=swapped,
                **_answer(right[place]),
            )
            for (prompt, swapped), right in CHOICES.items()
        ],
    )
    for place in range(4)
]
MEASURED: list[dict[str, Any]] = [
    {
        "graph": {"id": "1"},
        "distance": MeasureEditDistanceResponse(distance=2, lower_bound=2, upper_bound=2, proven=True),
    },
    {
        "graph": {"id": "2"},
        "distance": MeasureEditDistanceResponse(distance=9, lower_bound=5, upper_bound=9),
    },
    {"abstain_reason": verdict_pb2.ABSTAIN_REASON_REFUSED},
]
GRAPHS = [
    GraphsResult(
        reference=ScriptGraph(id="r"), task=GRAPH_TASK_GENERATE, graphs=[MeasuredGraph(model="a", **fields)]
    )
    for fields in MEASURED
]


def edge_score(shared: int) -> EdgeScore:
    counts = EdgeCounts(predicted=shared, reference=1, shared=shared)
    return EdgeScore(counts=counts, measures=EdgeMeasures(f1=shared), exact_match=shared == 1)


SCRIPTS = [
    scripts_result("t1", {"a": {"adequacy": True, "other": None}, "b": {"adequacy": False, "other": True}}),
    scripts_result("t2", {"a": {"adequacy": True, "other": True}, "b": {"adequacy": None, "other": None}}),
    scripts_result("t3", {"a": {"adequacy": False, "other": True}, "b": {"adequacy": False, "other": True}}),
]

FIRST, SECOND = pairs.PREFERENCE_FIRST, pairs.PREFERENCE_SECOND


def comparison(given: int, swapped: int) -> ComparePairResponse:
    """The vote of one role with its ballots in both orders."""
    vote = given if given == swapped else pairs.PREFERENCE_TIE
    return ComparePairResponse(
        votes=[
            RoleVote(
                preference=pairs.Preference.ValueType(vote),
                ballots=[
                    Ballot(
                        order=pairs.PRESENTATION_ORDER_AS_GIVEN,
                        preference=pairs.Preference.ValueType(given),
                    ),
                    Ballot(
                        order=pairs.PRESENTATION_ORDER_SWAPPED,
                        preference=pairs.Preference.ValueType(swapped),
                    ),
                ],
            )
        ],
        preference=pairs.Preference.ValueType(vote),
        first_vote_share=1.0 if vote == FIRST else 0.0 if vote == SECOND else 0.5,
    )


PAIRS = [
    PairResult(
        id=str(place),
        first_model="a",
        second_model="b",
        human_preference=human,
        longer=longer,
        comparisons=[PairComparison(method="roles", judge="j", comparison=comparison(given, swapped))],
        text_metrics=["rouge-l"],
        metric_differences={"rouge-l": 0.25 if human == FIRST else -0.5},
    )
    # The last vote prefers the text that is presented first in both orders.
    for place, (human, longer, given, swapped) in enumerate(
        [
            (FIRST, FIRST, FIRST, FIRST),
            (SECOND, FIRST, SECOND, SECOND),
            (FIRST, SECOND, SECOND, SECOND),
            (SECOND, SECOND, FIRST, SECOND),
        ]
    )
]


def judged_text(model: str, *judged: Sequence[Verdict]) -> TextResult:
    """A text with the verdicts of each judge; those of the first count."""
    assessments = [
        CandidateAssessment(role="rubric-judge", judge=f"j{index}", assessment=Assessment(verdicts=verdicts))
        for index, verdicts in enumerate(judged)
    ]
    return TextResult(text_id=model, model=model, verdicts=judged[0], assessments=assessments)


TEXTS = [
    TextsResult(
        criteria=[POLITE, CLEAR],
        texts=[
            judged_text(
                "a",
                [passed("polite"), scored("clear", 2 + place)],
                [failed("polite"), abstained("clear", ABSTAIN_REASON_REFUSED)],
            ),
            judged_text("b", [failed("polite"), abstained("clear", ABSTAIN_REASON_TIMED_OUT)]),
        ],
    )
    for place in range(3)
]
SIMULATIONS = [
    SimulatedDialogue(
        task=SimulationTask(name="shell", kind=SIMULATION_KIND_STATEFUL),
        utterances=[
            Utterance(speaker=SPEAKER_USER, text="act"),
            Utterance(speaker=SPEAKER_USER, text="go on", strategy="next-step"),
        ],
        turn_count=2,
        challenging_turn=turn,
        challenge_abstain_reason=ABSTAIN_REASON_TIMED_OUT if turn is None else ABSTAIN_REASON_UNSPECIFIED,
        ended_early="turn 3: nothing more" if turn is None else "",
        redirected_turns=[2, 3] if turn is None else (),
        scripts=[
            DialogueScript(task=SimulationTask(kind=SIMULATION_KIND_STATEFUL), subset=SCRIPT_SUBSET_LAST_ONLY)
        ]
        * (turn == 0),
        challenge_judge="finder",
    )
    for turn in (0, 2, None)
]
SCENARIOS = [
    ScenariosResult(
        id=f"b{place}",
        form=SCENARIO_FORM_VERB_PHRASE,
        duplicates_unchecked="" if place else "no service",
        scenarios=[
            WrittenScenario(id="option-1/0", model="a", target=CHOICE_OPTION_1, scenario="is late"),
            WrittenScenario(
                id="option-1/1",
                model="a",
                target=CHOICE_OPTION_1,
                scenario="is late too",
                duplicate_of="option-1/0" if place else "",
            ),
            WrittenScenario(
                id="option-2/0", model="a", target=CHOICE_OPTION_2, scenario="takes a car", leaks_option=True
            ),
            WrittenScenario(
                id="option-2/1",
                model="a",
                target=CHOICE_OPTION_2,
                failure_reason=ABSTAIN_REASON_UNSPECIFIED if place else ABSTAIN_REASON_REFUSED,
                abstain_reason=ABSTAIN_REASON_TIMED_OUT if place else ABSTAIN_REASON_UNSPECIFIED,
            ),
        ],
    )
    for place in range(3)
]
RESULTS: dict[str, Sequence[Message]] = {
    "scenarios": SCENARIOS,
    "scripts": SCRIPTS,
    "pair": PAIRS,
    "graphs": GRAPHS,
    "decision": DECISIONS,
    "dialogue": DIALOGUES,
    "texts": TEXTS,
    "simulation": SIMULATIONS,
}
KINDS = {"decision": "decisions", "dialogue": "dialogues", "pair": "pairs", "simulation": "simulations"}
"""Kinds by the member of the result, where the names differ."""
OPTIONS = SummaryOptions(groupings=[TagGrouping(tags=["level"]), TagGrouping(tags=["level", "source"])])


def samples(kind: str) -> list[RunSample]:
    """Samples with tags, and a failed one."""
    found = []
    for index, result in enumerate(RESULTS[kind]):
        tags = {"level": "low" if index % 2 else "high", "source": str(index % 3)}
        sample = RunSample(
            index=index, sample_id=f"s{index}", state=SAMPLE_STATE_SUCCEEDED, tags=tags, attempt_count=1
        )
        getattr(sample, kind).CopyFrom(result)
        found.append(sample)
    error = SampleError(
        code=STATUS_CODE_UNAVAILABLE,
        reason=error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
        message="gone",
    )
    found.append(
        RunSample(
            index=len(found),
            sample_id=f"s{len(found)}",
            state=SAMPLE_STATE_FAILED,
            error=error,
            attempt_count=1,
        )
    )
    return found


def kind_of(some: Sequence[RunSample]) -> str:
    return some[0].WhichOneof("result") or ""
