"""Asks a panel of a gateway about cases: by an evaluation, because a panel has no address."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

import grpc

from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    GOLD_ANSWER_SOURCE_GIVEN,
    GOLD_ANSWER_SOURCE_NONE,
    MECHANISM_AGENTS,
    MECHANISM_SINGLE_JUDGE,
    EvaluateScriptsRequest,
)
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest, RubricCriterion
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest
from dramaturg.judge.provenance import merge
from dramaturg.judge.roles import COMMONSENSE, CRITIC, EXECUTE, RUBRIC_JUDGE, SCRIPT_JUDGE

PANEL_ROLES = tuple(role.name for role in (CRITIC, EXECUTE, COMMONSENSE, SCRIPT_JUDGE, RUBRIC_JUDGE))
"""The roles whose panels can be asked about cases."""


async def panel_assessment(
    gateway: grpc.aio.Channel,
    panel: JudgeSelection,
    request: JudgeRequest,
    *,
    candidate_id: str,
    timeout: float,
) -> Assessment:
    """The verdicts of a panel on one candidate, with the provenance of the members that were asked.

    Args:
        gateway: The gateway that has the panel.
        panel: The panel; its role is one of ``PANEL_ROLES``.
        request: The request that a judge of the role would get.
        candidate_id: The id of the candidate.
        timeout: The timeout of the evaluation, in seconds.

    Returns:
        The verdicts by the rule of the panel. The names of prompts are "member/prompt".

    Raises:
        grpc.aio.AioRpcError: The gateway refuses the evaluation, or fails.
    """
    stub = EvaluationServiceStub(gateway)
    if panel.role == RUBRIC_JUDGE.name:
        texts = (await _result(stub.EvaluateTexts(_texts(panel, request), timeout=timeout))).texts
        found = next(one for one in texts if one.text_id == candidate_id)
    else:
        scripts = await _result(stub.EvaluateScripts(_scripts(panel, request), timeout=timeout))
        found = next(one for one in scripts.candidates if one.candidate_id == candidate_id)
    for one in found.assessments:
        for prompt in one.assessment.provenance.prompts:
            prompt.name = f"{one.judge}/{prompt.name}"
    provenance = merge(one.assessment.provenance for one in found.assessments)
    return Assessment(verdicts=found.verdicts, provenance=provenance)


async def _result(events: AsyncIterable[Any]) -> Any:
    """The result, which is the last event."""
    async for event in events:
        last = event
    return last.result


def _scripts(panel: JudgeSelection, request: JudgeRequest) -> EvaluateScriptsRequest:
    single = panel.role == SCRIPT_JUDGE.name
    made = EvaluateScriptsRequest(
        task=request.task,
        candidates=map(_candidate, request.candidates),
        judges=[panel],
        mechanism=MECHANISM_SINGLE_JUDGE if single else MECHANISM_AGENTS,
        roles=[panel.role],
        gold_answer_source=GOLD_ANSWER_SOURCE_NONE,
        options=request.options,
    )
    if request.reference.steps:
        made.gold_answer_source = GOLD_ANSWER_SOURCE_GIVEN
        made.gold_answer.CopyFrom(request.reference)
    return made


def _candidate(one: JudgeCandidate) -> Candidate:
    return (
        Candidate(id=one.id, script=one.script) if one.script.steps else Candidate(id=one.id, text=one.text)
    )


def _texts(panel: JudgeSelection, request: JudgeRequest) -> EvaluateTextsRequest:
    return EvaluateTextsRequest(
        task=request.task,
        texts=[EvaluatedText(id=one.id, text=one.text) for one in request.candidates],
        criteria=map(_criterion, request.criteria),
        judges=[panel],
        options=request.options,
    )


def _criterion(one: Criterion) -> RubricCriterion:
    if one.HasField("scale"):
        return RubricCriterion(id=one.id, description=one.definition, scale=one.scale)
    return RubricCriterion(id=one.id, passes=one.definition)
