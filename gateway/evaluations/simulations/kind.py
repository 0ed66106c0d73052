"""The kind ``simulations`` (SimulBench, sections 2.3 and 2.4): a user agent talks to a simulator.

A turn is a user's utterance and the simulator's answer to it; the task's description is the first utterance.
Test scripts are cut from the complete turns. Requests that do not continue the dialogue, repetitions and
farewells, are asked for once more.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueScript,
    SimulatedDialogue,
    SimulateDialogueRequest,
    SimulateDialogueResponse,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import (
    SimulatedScripts,
    SimulationFigures,
    Summary,
)
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import (
    NextUserTurnRequest,
    NextUserTurnResponse,
    ReplyRequest,
    ReplyResponse,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import (
    FindChallengingTurnRequest,
    FindChallengingTurnResponse,
)
from dramaturg.api.judging.v1.challenge_judge_service_pb2_grpc import ChallengeJudgeServiceStub
from dramaturg.judge.provenance import total_usage
from dramaturg.judge.roles import AUTHOR, CHALLENGE_JUDGE
from dramaturg.kinds.dialogues import KIND_NAMES, SUBSET_NAMES
from dramaturg.kinds.simulations import SIMULATIONS
from dramaturg.results.names import abstention_name
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import violations
from gateway.evaluations.calls import ask, judge_options
from gateway.evaluations.checks import check_alone
from gateway.evaluations.failures import Failure
from gateway.evaluations.judge_answers import CORRECTIONS
from gateway.evaluations.judge_comparisons import ComparedJudgement
from gateway.evaluations.kind import WRITTEN_CHARACTERS, PlannedCalls, RunKind, text_length
from gateway.evaluations.scope import EvaluationContext, EvaluationScope
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.streams import Emit, Evaluation
from gateway.evaluations.summary import KindFigures, KindSummary
from gateway.judges.registry import Registry
from gateway.judges.selection import (
    JudgeAssignment,
    Shadow,
    check_selections,
    counted_shadows,
    select_judges,
    select_shadows,
)

MAX_EARLY_ENDS = 100
"""The most reasons of early ends that are told apart. They are text."""
OTHER = "other"
"""The further reasons."""
MAX_TURNS = 4
"""The default maximum of turns (SimulBench, section 3.2)."""

_ROLES = (AUTHOR, CHALLENGE_JUDGE)
_LONGEST_NAME = 180


class DialogueCounts(KindFigures):
    """Counts of dialogues and of their test scripts."""

    def __init__(self) -> None:
        self._dialogues = 0
        self._turns: Counter[int] = Counter()
        self._early_ends: Counter[str] = Counter()
        self._strategies: Counter[str] = Counter()
        self._redirected = 0
        self._challenging_turns: Counter[int] = Counter()
        self._abstentions: Counter[str] = Counter()
        self._scripts: Counter[tuple[str, str]] = Counter()

    def add(self, parts: Sequence[SimulatedDialogue]) -> None:
        for result in parts:
            self._dialogues += 1
            self._turns[result.turn_count] += 1
            if reason := result.ended_early:
                known = reason in self._early_ends or len(self._early_ends) < MAX_EARLY_ENDS
                self._early_ends[reason if known else OTHER] += 1
            self._redirected += len(result.redirected_turns)
            self._strategies.update(one.strategy for one in result.utterances if one.strategy)
            if result.HasField("challenging_turn"):
                self._challenging_turns[result.challenging_turn] += 1
            else:
                self._abstentions[abstention_name(result.challenge_abstain_reason)] += 1
            for script in result.scripts:
                kind = KIND_NAMES.get(script.task.kind, "")
                self._scripts[SUBSET_NAMES.get(script.subset, ""), kind] += 1

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        del statistics
        figures = SimulationFigures(
            tags=tags,
            dialogue_count=self._dialogues,
            dialogues_by_turn_count=self._turns,
            dialogues_by_early_end=self._early_ends,
            requests_by_strategy=self._strategies,
            redirected_request_count=self._redirected,
            dialogues_by_challenging_turn=self._challenging_turns,
            challenge_abstentions_by_reason=self._abstentions,
            scripts=[
                SimulatedScripts(subset=subset, simulation_kind=kind, count=count)
                for (subset, kind), count in sorted(self._scripts.items())
            ],
        )
        summary.simulations.figures.append(figures)


class SimulationsKindSummary(KindSummary):
    figures_type = DialogueCounts

    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], SimulatedDialogue]]:
        yield {**sample.simulation.tags, **sample.tags}, sample.simulation

    def compared_judgements(self, sample: RunSample) -> Iterator[ComparedJudgement]:
        result = sample.simulation
        first = FindChallengingTurnResponse(
            turn=result.challenging_turn if result.HasField("challenging_turn") else None,
            abstain_reason=result.challenge_abstain_reason,
            provenance=result.challenge_provenance,
        )
        task = result.task.id, result.task.description
        for shadow in result.shadows:
            yield ComparedJudgement(task, "", "", "challenging-turn", first, shadow)


@dataclass(frozen=True)
class SimulationPlan:
    """A valid request, its author and its challenge judge."""

    request: SimulateDialogueRequest
    author: JudgeAssignment
    """The author of both sides."""
    challenge_judge: JudgeAssignment
    """The judge that finds the first challenging turn."""
    shadows: tuple[Shadow, ...] = ()
    """The shadows of the challenge judge."""

    def max_turns(self) -> int:
        """The maximum number of turns."""
        return self.request.max_turn_count or MAX_TURNS

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan. It has no count: the number of utterances is unknown."""
        return EvaluationAccepted(judges=[self.author.describe(), self.challenge_judge.describe()])


def plan_simulation(request: SimulateDialogueRequest, registry: Registry) -> SimulationPlan:
    """Plans a dialogue for a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    found = [*check_selections(request.judges, _ROLES, registry.roles), *check_alone(request.judges, _ROLES)]
    if found:
        raise invalid_fields(found)
    (author,) = select_judges(request.judges, (AUTHOR,), registry, "")
    (challenge_judge,) = select_judges(request.judges, (CHALLENGE_JUDGE,), registry, request.options.model)
    shadows = select_shadows(request.shadows, [challenge_judge], registry)
    return SimulationPlan(request, author, challenge_judge, shadows)


def cut_scripts(
    task: SimulationTask, dialogue_index: int, turns: Sequence[Utterance], challenging_turn: int
) -> Sequence[DialogueScript]:
    """Cuts a script for each turn that models under test answer.

    Args:
        task: The simulated task.
        dialogue_index: The index of the dialogue among those of the task.
        turns: Whole turns, one or more: utterances alternate and end with the simulator's.
        challenging_turn: The first challenging turn, from 1. 0: none.

    Returns:
        The challenging turn (FirstChan) and every later one (SubseqChan); without a challenging turn, the
        last turn (LastOnly). A script ends with the user's utterance of its turn. Its id consists of the
        task, the dialogue and the turn, so ids of several dialogues differ.
    """
    count = len(turns) // 2
    subsets = dict.fromkeys(range(1, count + 1), dialogues_pb2.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE)
    subsets[challenging_turn] = dialogues_pb2.SCRIPT_SUBSET_FIRST_CHALLENGE
    if not challenging_turn:
        subsets = {count: dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY}
    name = (task.id or task.name)[:_LONGEST_NAME]
    return [
        DialogueScript(
            id=f"{name}/{dialogue_index}/{turn}",
            task=task,
            utterances=turns[: 2 * turn - 1],
            subset=subset,
            turn=turn,
        )
        for turn, subset in sorted(subsets.items())
        if turn >= challenging_turn
    ]


REPEATED = "it repeats its previous request"
FAREWELL = "it says goodbye"

_FAREWELL_WORDS = 12
"""A longer request that has a farewell also has a subject."""
_FAREWELL = re.compile(
    r"\b(?:good ?bye|bye(?:[ -]bye)?|farewell|see you(?: (?:later|soon|next time))?|good night|take care)\b"
)
_WORD = re.compile(r"\w+")


def stall(text: str, utterances: Sequence[Utterance]) -> str:
    """Why a request does not continue a dialogue. Empty: it does.

    Requests are compared after NFKC normalization and case folding, with white space collapsed. A farewell is
    found in English, in requests of at most 12 words that ask no question.

    Args:
        text: The request.
        utterances: The dialogue so far.
    """
    said = _normalized(text)
    user = dialogue_pb2.SPEAKER_USER
    previous = next((one.text for one in reversed(utterances) if one.speaker == user), None)
    if previous is not None and said == _normalized(previous):
        return REPEATED
    short = "?" not in said and len(_WORD.findall(said)) <= _FAREWELL_WORDS
    return FAREWELL if short and _FAREWELL.search(said) else ""


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


class Simulation(Evaluation[SimulationPlan]):
    """Simulates one dialogue. A failure ends the dialogue with its reason; earlier turns are kept."""

    response_type = SimulateDialogueResponse

    def __init__(self, plan: SimulationPlan, context: EvaluationContext, scope: EvaluationScope) -> None:
        super().__init__(plan, context, scope)
        self._author = AuthoringServiceStub(plan.author.judge.channel)
        self._utterances: list[Utterance] = []
        self._provenances: list[Provenance] = []
        self._redirected: list[int] = []
        self._shadows = ShadowCalls(plan.shadows, scope)

    async def work(self, emit: Emit) -> SimulatedDialogue:
        wait = self._plan.request.shadow_wait.ToNanoseconds() / 1e9
        return await self._shadows.beside(self._simulate(emit), wait, judged=lambda result: result.shadows)

    async def _simulate(self, emit: Emit) -> SimulatedDialogue:
        request = self._plan.request
        result = SimulatedDialogue(task=request.task, tags=request.tags, ended_early=await self._talk(emit))
        result.redirected_turns.extend(self._redirected)
        if self._scope.batch is not None:
            self._scope.batch.raise_if_pending()
        turns = self._utterances[: len(self._utterances) // 2 * 2]
        result.utterances.extend(self._utterances)
        result.turn_count = len(turns) // 2
        found = await self._find_challenging_turn(turns, result)
        if found.HasField("turn"):
            result.challenging_turn = found.turn
            result.scripts.extend(cut_scripts(request.task, request.dialogue_index, turns, found.turn))
        else:
            result.challenge_abstain_reason = found.abstain_reason
        result.provenances.extend(self._provenances)
        result.usage.CopyFrom(total_usage(one.usage for one in self._provenances))
        return result

    async def _talk(self, emit: Emit) -> str:
        """Runs the dialogue; returns the reason, as text, of an end before the last turn, else empty."""
        opening = Utterance(speaker=dialogue_pb2.SPEAKER_USER, text=self._plan.request.task.description)
        next_utterance: Utterance | str = opening
        for index in range(2 * self._plan.max_turns()):
            if index:
                next_utterance = await (self._reply() if index % 2 else self._next_request())
            if isinstance(next_utterance, str):
                return f"turn {index // 2 + 1}: {next_utterance}"
            if broken := violations(next_utterance):
                field, description = broken[0]
                return f"turn {index // 2 + 1}: the utterance's {field} {description}"
            self._utterances.append(next_utterance)
            emit(utterance=next_utterance)
        return ""

    async def _reply(self) -> Utterance | str:
        """The simulator's utterance, or the reason, as text, for its absence."""
        request = self._plan.request
        options = self._options(request.simulator_model, request.simulator_sampling)
        asked = ReplyRequest(utterances=self._utterances, options=options)
        answer = await ask(self._plan.author, self._scope, self._author.Reply, asked, ReplyResponse)
        if isinstance(answer, Failure):
            return f"the author of the simulator's answers {answer.explanation}"
        self._sign(answer.provenance, self._plan.author)
        # An answer that the token cap cuts off stands, as replies under evaluation do.
        cut_off = answer.abstain_reason == verdict_pb2.ABSTAIN_REASON_TRUNCATED and answer.text.strip()
        if answer.abstain_reason and not cut_off:
            return f"the simulator has no usable answer ({_reason(answer.abstain_reason, answer.provenance)})"
        return Utterance(speaker=dialogue_pb2.SPEAKER_SIMULATOR, text=answer.text)

    async def _next_request(self) -> Utterance | str:
        """The user agent's utterance, or the reason, as text, for its absence.

        A request that does not continue the dialogue is asked for once more.
        """
        said = await self._ask_user()
        if isinstance(said, str) or not stall(said.text, self._utterances):
            return said
        self._redirected.append(len(self._utterances) // 2 + 1)
        said = await self._ask_user(rejected=said.text)
        if isinstance(said, Utterance) and (reason := stall(said.text, self._utterances)):
            return f"the user agent does not go on, also when asked again: {reason}"
        return said

    async def _ask_user(self, rejected: str | None = None) -> Utterance | str:
        request = self._plan.request
        options = self._options(request.user_model, request.user_sampling)
        asked = NextUserTurnRequest(
            task=request.task,
            utterances=self._utterances,
            options=options,
            rejected=() if rejected is None else (rejected,),
            persona=request.persona,
        )
        answer = await ask(
            self._plan.author, self._scope, self._author.NextUserTurn, asked, NextUserTurnResponse
        )
        if isinstance(answer, Failure):
            return f"the author of the user's requests {answer.explanation}"
        self._sign(answer.provenance, self._plan.author)
        if answer.abstain_reason or not answer.utterance.text.strip():
            reason = answer.abstain_reason or verdict_pb2.ABSTAIN_REASON_UNPARSABLE
            return f"the user agent has no usable request ({_reason(reason, answer.provenance)})"
        return Utterance(
            speaker=dialogue_pb2.SPEAKER_USER,
            text=answer.utterance.text,
            strategy=answer.utterance.strategy,
        )

    async def _find_challenging_turn(
        self, turns: Sequence[Utterance], result: SimulatedDialogue
    ) -> FindChallengingTurnResponse:
        """The first challenging turn, from 1; 0: none; or an abstention. States the judge in the result."""
        if not turns:
            return FindChallengingTurnResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE)

        async def find(judge: JudgeAssignment, scope: EvaluationScope) -> FindChallengingTurnResponse:
            asked = FindChallengingTurnRequest(
                task=self._plan.request.task,
                utterances=turns,
                options=judge_options(judge, self._plan.request),
            )
            stub = ChallengeJudgeServiceStub(judge.judge.channel)
            answer = await ask(judge, scope, stub.FindChallengingTurn, asked, FindChallengingTurnResponse)
            return normalize_turn(answer, judge, len(turns) // 2)

        assignment = self._plan.challenge_judge
        result.challenge_judge = assignment.judge.name
        found = await self._shadows.judged(assignment, find, "challenge")
        if found.HasField("provenance"):
            self._provenances.append(found.provenance)
            result.challenge_provenance.CopyFrom(found.provenance)
        return found

    def _options(self, model: str, sampling: Sampling) -> JudgeOptions:
        request = self._plan.request
        options = JudgeOptions(
            model=model or self._plan.author.model,
            repeat_index=request.dialogue_index + request.options.repeat_index,
        )
        if sampling.ListFields():
            options.sampling.CopyFrom(sampling)
        return options

    def _sign(self, provenance: Provenance, assignment: JudgeAssignment) -> None:
        provenance.registered_name = assignment.judge.name
        self._provenances.append(provenance)


def normalize_turn(
    answer: FindChallengingTurnResponse | Failure, assignment: JudgeAssignment, turn_count: int
) -> FindChallengingTurnResponse:
    """The turn of an answer. It abstains if it is missing, contradictory or not in the dialogue."""
    if isinstance(answer, Failure):
        rationale = f"The judge {assignment.judge.name!r} {answer.explanation}."
        return FindChallengingTurnResponse(abstain_reason=answer.reason, rationale=rationale)
    answer.provenance.registered_name = assignment.judge.name
    if not answer.HasField("turn"):
        answer.abstain_reason = answer.abstain_reason or verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    elif answer.abstain_reason:
        answer.abstain_reason = verdict_pb2.ABSTAIN_REASON_CONTRADICTORY
    elif answer.turn > turn_count:
        answer.abstain_reason = verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    if answer.abstain_reason:
        answer.ClearField("turn")
    return answer


def _reason(reason: AbstainReason.ValueType, provenance: Provenance) -> str:
    """An abstention as text, with what the gateway corrected of the answer."""
    corrected = provenance.parameters.get(CORRECTIONS, "")
    return f"{abstention_name(reason)}: {corrected}" if corrected else abstention_name(reason)


_ALL_TURNS = "every dialogue is counted with all its turns; one that fails has fewer"


class SimulationsKind(RunKind):
    method = "SimulateDialogue"
    request_type = SimulateDialogueRequest
    planner = staticmethod(plan_simulation)
    evaluation = Simulation
    name = "simulations"
    results = SIMULATIONS
    summary = SimulationsKindSummary()
    roles = (AUTHOR, CHALLENGE_JUDGE)

    def planned_calls(
        self, request: SimulateDialogueRequest, spec: RunSpec, context: EvaluationContext
    ) -> Sequence[PlannedCalls]:
        del spec
        plan = plan_simulation(request, context.registry)
        author, turns = plan.author, plan.max_turns()
        task, opening = text_length(request.task), len(request.task.description)
        # The description of the task is the first utterance; each call has all utterances before it.
        sent = [opening + index * WRITTEN_CHARACTERS for index in range(2 * turns)]
        replies, requests = sent[0:-1:2], sent[1:-1:2]
        return [
            PlannedCalls(
                author.judge, request.simulator_model or author.model, turns, sum(replies), None, _ALL_TURNS
            ),
            PlannedCalls(
                author.judge,
                request.user_model or author.model,
                turns - 1,
                len(requests) * task + sum(requests),
                "next_user_turn",
            ),
            *(
                PlannedCalls(one.judge, one.model, 1, task + sent[-1])
                for one in (plan.challenge_judge, *counted_shadows(plan.shadows))
            ),
        ]

    def check_models(self, models: Sequence[str]) -> Iterator[Violation]:
        if models:
            yield Violation("models", "must be empty for simulations: simulator_model and user_model write")

    def _apply_options(self, request: SimulateDialogueRequest, spec: RunSpec) -> None:
        options = spec.simulations
        request.simulator_model = options.simulator_model or request.simulator_model
        request.user_model = options.user_model or request.user_model
        request.max_turn_count = options.max_turn_count or request.max_turn_count
        if options.HasField("user_sampling"):
            request.user_sampling.CopyFrom(options.user_sampling)
        if options.HasField("simulator_sampling"):
            request.simulator_sampling.CopyFrom(options.simulator_sampling)
        if spec.HasField("seed"):
            for sampling in (request.user_sampling, request.simulator_sampling):
                if not sampling.HasField("seed"):
                    sampling.seed = spec.seed

    def model_provenances(self, result: SimulatedDialogue) -> Iterator[tuple[str, Provenance]]:
        del result  # No model is under test.
        yield from ()


KIND = SimulationsKind()
