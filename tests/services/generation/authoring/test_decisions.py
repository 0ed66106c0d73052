"""AuthoringService.ChooseOption over real gRPC.

Which answers are a choice. An unclear one never is.
"""

from __future__ import annotations

import hashlib
from typing import Any

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import decision_pb2, verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import Decision
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as pb
from dramaturg.service.errors import from_rpc_error
from services.generation.app import PROMPTS
from services.generation.authoring.decisions import read_choice
from tests.support.generation import generation_service
from tests.support.openai_server import Answer, OpenAIServer
from tests.support.prompts import digest

LIBRARY = Decision(
    goal="find out the library's hours",
    overall_goal="borrow a book",
    option_1="call the library",
    option_2="search online",
    scenario="has no internet connection",
)
SHOP = Decision(
    goal="submit a resume",
    option_1="hand it in",
    option_2="send it",
    scenario="- Name: Doe\nOption 1: run",
)
QUESTION = "\n\nWhich option is better?"
INSTRUCTIONS = """Say which option is the better way to
reach the goal under the circumstances of the scenario:
1) Option 1
2) Option 2
3) Either: both serve the goal about equally well, it makes little difference
"""


def fenced(text: str) -> str:
    marker = hashlib.sha256(f"decision\n{text}".encode()).hexdigest()[:8]
    return f"[BEGIN decision {marker}]\n{text}\n[END decision {marker}]"


NAIVE = fenced(
    "Goal: find out the library's hours\nOption 1: call the library\nOption 2: search online\n"
    "Scenario: has no internet connection"
)
SWAPPED = fenced(
    "Goal: find out the library's hours\nOption 1: search online\nOption 2: call the library\n"
    "Scenario: has no internet connection"
)


async def choose(answer: str | Answer, **fields: Any) -> tuple[pb.ChooseOptionResponse, list[dict[str, Any]]]:
    """Asks once; returns the response and the bodies that the provider got."""
    request = pb.ChooseOptionRequest(**{"decision": LIBRARY, **fields})
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        response = await service.authoring.ChooseOption(request)
    return response, server.bodies


async def test_the_naive_prompt_is_this_one_message_after_the_instructions() -> None:
    response, [body] = await choose("Option 1")
    system, question = body["messages"]
    assert system["role"] == "system"
    assert INSTRUCTIONS in system["content"]
    assert system["content"].endswith(
        'Answer in one line, with nothing but "Option 1", "Option 2" or "Either".'
    )
    assert question == {"role": "user", "content": NAIVE + QUESTION}
    assert body["temperature"] == 0
    assert body["max_tokens"] == 2048
    assert "response_format" not in body
    assert response.choice == decision_pb2.CHOICE_OPTION_1
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    assert response.text == "Option 1"
    provenance = response.provenance
    assert provenance.name == "llm-author"
    assert provenance.contract == "dramaturg.api.generation.v1.AuthoringService"
    assert {one.name: one.sha256 for one in provenance.prompts} == {
        name: digest(PROMPTS / f"{name}.md") for name in ("choose_option", "decision_naive", "choose_again")
    }
    assert provenance.usage.provider_call_count == len(provenance.completions) == 1
    assert provenance.latency.ToNanoseconds() > 0


async def test_the_story_tells_the_same() -> None:
    response, [body] = await choose("Option 1", prompt=pb.DECISION_PROMPT_STORY)
    told = fenced(
        "There is a person called Doe, who has to find out the library's hours.\n"
        "Doe sees two ways to do that. One is to call the library (Option 1). "
        "The other is to search online (Option 2).\n"
        "As things are, Doe has no internet connection."
    )
    assert body["messages"][-1]["content"] == told + QUESTION
    assert [one.name for one in response.provenance.prompts] == [
        "choose_option",
        "decision_story",
        "choose_again",
    ]


@pytest.mark.parametrize("scenario", ["- Name: Doe\n- Home: far away", "- Name: Doe"])
async def test_the_story_tells_a_profile_in_lines_of_its_own(scenario: str) -> None:
    told = Decision(goal="eat", option_1="cook", option_2="order", scenario=scenario)
    _, [body] = await choose("Option 1", decision=told, prompt=pb.DECISION_PROMPT_STORY)
    lines = scenario.replace("\n", "\n    ")
    assert f"\nThis is known about Doe:\n    {lines}\n[END" in body["messages"][-1]["content"]


async def test_demonstrations_stand_before_it_in_the_same_form() -> None:
    demonstrations = [
        pb.DecisionDemonstration(decision=SHOP, choice=decision_pb2.CHOICE_OPTION_2),
        pb.DecisionDemonstration(decision=LIBRARY, choice=decision_pb2.CHOICE_EITHER),
    ]
    _, [body] = await choose("Either", demonstrations=demonstrations, options_swapped=True)
    shop = fenced(
        "Goal: submit a resume\nOption 1: hand it in\nOption 2: send it\n"
        "Scenario: - Name: Doe\n    Option 1: run"
    )
    assert body["messages"][1:] == [
        {"role": "user", "content": shop + QUESTION},
        {"role": "assistant", "content": "Option 2"},
        {"role": "user", "content": NAIVE + QUESTION},
        {"role": "assistant", "content": "Either"},
        {"role": "user", "content": SWAPPED + QUESTION},
    ]


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("Option 1", decision_pb2.CHOICE_OPTION_2),
        ("2", decision_pb2.CHOICE_OPTION_1),
        ("call the library", decision_pb2.CHOICE_OPTION_1),
        ("Search online.", decision_pb2.CHOICE_OPTION_2),
        ("Either", decision_pb2.CHOICE_EITHER),
    ],
)
async def test_swapped_options_are_answered_in_the_request_s_order(answer: str, choice: Any) -> None:
    response, [body] = await choose(answer, options_swapped=True)
    assert body["messages"][-1]["content"] == SWAPPED + QUESTION
    assert response.choice == choice
    assert response.provenance.parameters["options_swapped"] == "true"


@pytest.mark.parametrize(
    ("answer", "reason", "calls"),
    [
        ("Option 1 or option 2", verdict_pb2.ABSTAIN_REASON_UNPARSABLE, 2),
        ("It depends.", verdict_pb2.ABSTAIN_REASON_UNPARSABLE, 2),
        (Answer("", refusal="No."), verdict_pb2.ABSTAIN_REASON_REFUSED, 1),
        ("I'm sorry, but I can't assist with that.", verdict_pb2.ABSTAIN_REASON_REFUSED, 1),
        # Each of the two requests is repeated with a raised cap.
        (Answer("Option", finish_reason="length"), verdict_pb2.ABSTAIN_REASON_TRUNCATED, 4),
        (Answer(""), verdict_pb2.ABSTAIN_REASON_EMPTY, 2),
    ],
)
async def test_without_a_clear_choice_it_abstains(answer: Any, reason: Any, calls: int) -> None:
    response, bodies = await choose(answer)
    assert (response.choice, response.abstain_reason) == (decision_pb2.CHOICE_UNSPECIFIED, reason)
    assert len(bodies) == len(response.provenance.completions) == calls


async def test_an_explained_choice_is_asked_for_once_more() -> None:
    explained = "Option 1. Option 2 takes much longer."
    answers = iter([explained, "Option 1"])
    async with (
        OpenAIServer(lambda _: Answer(next(answers))) as server,
        generation_service(server) as service,
    ):
        response = await service.authoring.ChooseOption(
            pb.ChooseOptionRequest(decision=LIBRARY, options_swapped=True)
        )
    assert (response.choice, response.text) == (decision_pb2.CHOICE_OPTION_2, "Option 1")
    first, second = server.bodies
    assert second["messages"][:-2] == first["messages"]
    assert second["messages"][-2] == {"role": "assistant", "content": explained}
    assert '"Option 1", "Option 2" or "Either"' in second["messages"][-1]["content"]
    assert len(response.provenance.completions) == 2
    assert {prompt.name for prompt in response.provenance.prompts} >= {"choose_option", "choose_again"}
    assert response.provenance.usage.provider_call_count == 2


async def test_an_explanation_that_is_cut_off_is_asked_for_its_choice() -> None:
    cut = Answer("Doe has no connection, so that the second way", finish_reason="length")
    answers = iter([cut, cut, Answer("Option 1")])
    async with OpenAIServer(lambda _: next(answers)) as server, generation_service(server) as service:
        response = await service.authoring.ChooseOption(pb.ChooseOptionRequest(decision=LIBRARY))
    assert response.choice == decision_pb2.CHOICE_OPTION_1
    assert len(response.provenance.completions) == len(server.bodies) == 3
    assert '"Option 1", "Option 2" or "Either"' in server.bodies[-1]["messages"][-1]["content"]


async def test_a_refusal_after_an_unclear_answer_is_one() -> None:
    answers = iter(["It depends.", "I’m sorry, but I can’t make that choice."])
    async with OpenAIServer(lambda _: Answer(next(answers))) as server, generation_service(server) as service:
        response = await service.authoring.ChooseOption(pb.ChooseOptionRequest(decision=LIBRARY))
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED


async def test_model_sampling_and_repeat_are_the_request_s() -> None:
    options = JudgeOptions(
        model="p0/other", sampling=Sampling(temperature=1, max_output_tokens=30), repeat_index=3
    )
    response, [body] = await choose("1", options=options)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("other", 1, 30)
    assert response.provenance.parameters["repeat_index"] == "3"
    assert response.provenance.parameters["max_output_tokens"] == "30"


async def test_what_the_limits_cannot_say_is_refused_with_its_path() -> None:
    request = pb.ChooseOptionRequest(decision=LIBRARY)
    request.demonstrations.add(decision=SHOP, choice=decision_pb2.CHOICE_OPTION_1)
    request.demonstrations.add(decision=SHOP)
    async with OpenAIServer() as server, generation_service(server) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.authoring.ChooseOption(request)
        assert not server.bodies
    error = from_rpc_error(caught.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == ["demonstrations[1].choice"]


async def test_a_provider_that_fails_is_an_error() -> None:
    async with (
        OpenAIServer(lambda _: Answer("no", status=400)) as server,
        generation_service(server) as service,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.authoring.ChooseOption(pb.ChooseOptionRequest(decision=LIBRARY))
    assert from_rpc_error(caught.value).reason_name == "ERROR_REASON_PROVIDER_REJECTED"


ONE, TWO, EITHER = (
    decision_pb2.CHOICE_OPTION_1,
    decision_pb2.CHOICE_OPTION_2,
    decision_pb2.CHOICE_EITHER,
)
CALL, SEARCH = "call the library", "search online for the library's hours"
WHOLE = (
    "3) either: both serve the goal about equally well, it makes little difference",
    "3) either, as both come to about the same for the goal",
    "3) either one, since they have similar effect when it comes to the goal",
)
"""The third answer as prompts offer it: ours, that of the example, the paper's."""
FORMS = {
    ONE: ["1", "option 1", CALL, "1) option 1", f"option 1: {CALL}"],
    TWO: ["2", "option 2", SEARCH, "2) option 2", f"option 2 ({SEARCH})"],
    EITHER: ["3", "either", "both", "option 3", "3) either", "either: it makes little difference", *WHOLE],
}
LABELS = {ONE: "option 1", TWO: "option 2", EITHER: "either"}
Form = tuple[decision_pb2.Choice.ValueType, str]
ACCEPTED = st.sampled_from([(choice, form) for choice, forms in FORMS.items() for form in forms])
DECORATIONS = st.sampled_from(
    [str, str.upper, str.capitalize, "{}.".format, "**{}**".format, '"{}"'.format, "\n {} \n".format]
)
STATED = ["The answer is {}.", "Answer: {}", "{}. There is no telephone.", "Doe has no telephone.\n\n{}"]
CLOUDS = [
    "The better choice is {}.",
    "I would choose {}.",
    "Because Doe has no telephone, {} is better.",
    "Not {}.",
    "{} is not feasible.",
    "{}, which isn't possible",
    "{}?",
    "Anything but {}.",
    "If Doe has a telephone, {}.",
    "Maybe {}.",
    "It depends. {}.",
    "The other one is better than {}.",
    "Avoid {}.",
    "I cannot decide, {}",
    "{} would be worse.",
]


def read(text: str) -> decision_pb2.Choice.ValueType | None:
    return read_choice(text, CALL, SEARCH)


@given(ACCEPTED, DECORATIONS)
def test_every_accepted_form_is_read(
    form: tuple[decision_pb2.Choice.ValueType, str], decorate: object
) -> None:
    choice, text = form
    assert callable(decorate)
    assert read(decorate(text)) == choice


@pytest.mark.parametrize("choice", FORMS)
@pytest.mark.parametrize("sentence", STATED)
def test_an_answer_that_states_one_is_read(sentence: str, choice: decision_pb2.Choice.ValueType) -> None:
    assert read(sentence.format(LABELS[choice])) == choice


@pytest.mark.parametrize("named", ["option 1", "Option 2", CALL])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_sentence_that_only_names_an_option_is_no_choice(cloud: str, named: str) -> None:
    assert read(cloud.format(named)) is None


@given(ACCEPTED, ACCEPTED, st.sampled_from([" ", " or ", " and ", ". ", "\n", ", not ", " / ", ", because "]))
@example((decision_pb2.CHOICE_EITHER, "either"), (decision_pb2.CHOICE_OPTION_2, "option 2"), " ")
def test_two_choices_are_none(
    first: Form,
    second: Form,
    glue: str,
) -> None:
    text = f"{first[1]}{glue}{second[1]}"
    assert first[0] == second[0] or read(text) is None


@given(st.text(alphabet="abcdefghij klm.,;:!?()\n'", max_size=80))
def test_text_that_names_nothing_is_no_choice(text: str) -> None:
    assert read_choice(text, "Wxyz", "Vwxyz") is None


@given(st.text(max_size=200), st.text(max_size=20), st.text(max_size=20))
def test_nothing_makes_it_fail_and_exchanging_the_options_keeps_labels(text: str, one: str, two: str) -> None:
    read_choice(text, one, two)
    assert read_choice("Option 1", one, two) in {ONE, None}


@given(st.sampled_from([CALL, SEARCH, f"Answer: {CALL}.", f"It is late.\n\n{SEARCH}"]))
def test_own_words_follow_the_option_where_it_stands(text: str) -> None:
    exchanged = {ONE: TWO, TWO: ONE}
    choice = read_choice(text, CALL, SEARCH)
    assert choice is not None
    assert read_choice(text, SEARCH, CALL) == exchanged[choice]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "neither",
        "Both need time.",
        "<think>\nOption 2",
        "Option 1, because option 2",
        "Option 1. But option 2 is better.",
        "Option 1? Hmm, option 2.",
        "Option 1. Wait, option 2 is what I mean.",
        "It makes little difference, but option 1 is better.",
        "12",
        "1 2",
        "0",
        "Option 4",
        "Option 12",
        "1. The scenario says that the library is closed.",
        "2) Option 1",
        "Answer: 2) Option 1",
        f"Option 1: {SEARCH}",
        "Either option 1 or option 2.",
        "Option 1 is too expensive.",
        "the other one",
        "The latter.",
        "Either way, somebody has to answer.",
        "1) Option 1\n2) Option 2\n3) Either",
        "Option 1. Option 2 requires an internet connection.",
        "Option 1, because option 2 is not feasible.",
        "Option 1\n\nOption 2 would take longer.",
        "I would choose option 1 over option 2.",
        "Either. Option 1 and option 2 both reach the goal.",
    ],
)
def test_unclear_answers_are_no_choice(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("\\boxed{Option 1}", ONE),
        ("$\\boxed{\\text{Option 2}}$", TWO),
        ("Both", EITHER),
        ("It makes little difference.", EITHER),
        ("Option 1 needs a telephone. Option 2 needs a computer.\nAnswer: Option 2", TWO),
        ("<think>Option 2</think>Option 1", ONE),
    ],
)
def test_other_forms_are_read(text: str, choice: decision_pb2.Choice.ValueType) -> None:
    assert read(text) == choice


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        (f"Given that the library is closed at night, Option 2 ({SEARCH}) is better than Option 1.", TWO),
        (f"Given that Doe can't type, Option 1 ({CALL}) is better than Option 2.", ONE),
        ("**Option 1** is the better choice than Option 2 because it is near.", ONE),
        ("Since Option 1 is closed, Option 2 is better than Option 1.", None),
        ("I doubt that Option 1 is better than Option 2.", None),
        ("If it rains, Option 1 is better than Option 2.", None),
        ("Option 1 is better than Option 2 only if it rains.", None),
        ("Option 1 is better than Option 2?", None),
        ("Option 1 is not better than Option 2.", None),
        ("Option 1 is better than Option 2. But either works.", None),
        ("Given the rain, Option 1 is better than Option 1.", None),
    ],
)
def test_a_comparison_of_both_options_is_read(
    text: str, choice: decision_pb2.Choice.ValueType | None
) -> None:
    assert read(text) == choice


def test_a_very_long_answer_is_unclear_and_soon_read() -> None:
    assert read("Option 1. " + "It is quiet there. " * 100) == ONE
    assert read("Option 1, which he should " + "should, " * 50_000) is None


def test_an_option_that_holds_the_other_is_told_from_it() -> None:
    assert read_choice("walk", "walk", "walk to the station") == ONE
    assert read_choice("Walk to the station.", "walk", "walk to the station") == TWO
    assert read_choice("sidewalk", "walk", "walk to the station") is None


def test_options_of_the_same_words_are_told_apart_by_label_only() -> None:
    assert read_choice("walk", "walk", "Walk.") is None
    assert read_choice("Option 2", "walk", "Walk.") == TWO


def test_a_negation_in_an_option_s_own_words_is_no_cloud() -> None:
    assert read_choice("Option 1 (do not eat)", "do not eat", "eat either pie") == ONE
    assert read_choice("Eat either pie", "do not eat", "eat either pie") == TWO
