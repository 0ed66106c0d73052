"""Simulates a dialogue (SimulBench, sections 2.3 and 2.4): a dialogue of a user agent with a simulator.

A turn is a user's utterance and the simulator's answer to it; the task's description is the first utterance.
Test scripts are cut from the complete turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import Utterance
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    SimulatedDialogue,
    SimulateDialogueResponse,
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
from dramaturg.judge.usage import total_usage
from dramaturg.results.names import abstention_name
from dramaturg.service.validation import violations
from gateway.evaluations.calls import Timeouts, ask, judge_options
from gateway.evaluations.failures import Failure
from gateway.evaluations.judge_answers import CORRECTIONS
from gateway.evaluations.shadows import ShadowCalls
from gateway.evaluations.simulations.cuts import cut_scripts
from gateway.evaluations.simulations.plan import SimulationPlan
from gateway.evaluations.simulations.stalls import stall
from gateway.evaluations.streams import Emit, Evaluation
from gateway.judges.selection import JudgeAssignment


class Simulation(Evaluation):
    """Simulates one dialogue. A failure ends the dialogue with its reason; earlier turns are kept.

    Args:
        plan: The plan of the evaluation.
        timeouts: The timeouts of judges.
    """

    def __init__(self, plan: SimulationPlan, timeouts: Timeouts) -> None:
        super().__init__(SimulateDialogueResponse, plan.accepted)
        self._plan = plan
        self._timeouts = timeouts
        self._author = AuthoringServiceStub(plan.author.judge.channel)
        self._utterances: list[Utterance] = []
        self._provenances: list[Provenance] = []
        self._redirected: list[int] = []
        self._shadows = ShadowCalls(plan.shadows, timeouts)

    async def work(self, emit: Emit) -> SimulatedDialogue:
        wait = self._plan.request.shadow_wait.ToNanoseconds() / 1e9
        return await self._shadows.beside(self._simulate(emit), wait, judged=lambda result: result.shadows)

    async def _simulate(self, emit: Emit) -> SimulatedDialogue:
        request = self._plan.request
        result = SimulatedDialogue(task=request.task, tags=request.tags, ended_early=await self._talk(emit))
        result.redirected_turns.extend(self._redirected)
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
        answer = await ask(self._plan.author, self._timeouts, self._author.Reply, asked, ReplyResponse)
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
        )
        answer = await ask(
            self._plan.author, self._timeouts, self._author.NextUserTurn, asked, NextUserTurnResponse
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

        async def find(judge: JudgeAssignment) -> FindChallengingTurnResponse:
            asked = FindChallengingTurnRequest(
                task=self._plan.request.task,
                utterances=turns,
                options=judge_options(judge, self._plan.request),
            )
            stub = ChallengeJudgeServiceStub(judge.judge.channel)
            answer = await ask(
                judge, self._timeouts, stub.FindChallengingTurn, asked, FindChallengingTurnResponse
            )
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
