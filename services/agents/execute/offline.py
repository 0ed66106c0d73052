"""The execute agent without a language model: topic, constraints and order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.judge import roles, verdicts
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.criteria import COMPLETES_GOAL, ORDER_CORRECT, SATISFIES_CONSTRAINTS
from dramaturg.judge.protocols import USES_POOL
from dramaturg.judge.steps import is_blank
from services.agents.offline import DESCRIPTION, VERSION, screens
from services.agents.offline.material import Embeddings, Material, gather
from services.agents.offline.screens import measure, screen_order, screen_topic, undecidable_word
from services.agents.offline.wording import quote, quote_all

_NOT_SUPPORTED = verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED


class OfflineExecutor:
    """A judge for the role "execute" by similarity to the goal, the constraints and the pool.

    Args:
        stub: The embedding service.
    """

    name = "offline-execute"
    version = VERSION
    description = DESCRIPTION
    criteria = roles.EXECUTE.criteria
    capabilities = (USES_POOL,)

    def __init__(self, stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub) -> None:
        self._embeddings = Embeddings(stub)

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges constraints, goal and order.

        Raises:
            ServiceError: The embedding service fails every request, for example for lack of weights.
        """
        constraints = _constraints(item.task)
        material = await gather(item, self._embeddings, [item.task.goal, *constraints], whole_scripts=True)
        if isinstance(material, Abstention):
            return Assessment(verdicts=_without_vectors(constraints, material))
        return await asyncio.to_thread(_judge, item.task.goal, constraints, material)


def _constraints(task: Task) -> list[str]:
    return [constraint for constraint in task.constraints if not is_blank(constraint)]


def _judge(goal: str, constraints: Sequence[str], material: Material) -> Assessment:
    return Assessment(
        verdicts=[_satisfies(constraints, material), _completes(goal, material), _ordered(material)],
        provenance=Provenance(
            parameters={
                "encoder": material.embedded.model,
                "pool_size": str(material.pool.size),
                "pool_left_out": str(material.pool.left_out),
                "off_topic_similarity": str(screens.OFF_TOPIC_SIMILARITY),
                "off_topic_distance_from_pool": str(screens.OFF_TOPIC_DISTANCE_FROM_POOL),
                "off_topic_min_pool": str(screens.OFF_TOPIC_MIN_POOL),
                "constraint_confidence": str(screens.CONSTRAINT_CONFIDENCE),
                "order_min_pool": str(screens.ORDER_MIN_POOL),
                "order_percentile": str(screens.ORDER_PERCENTILE),
                "order_max_consistency": str(screens.ORDER_MAX_CONSISTENCY),
            }
        ),
    )


def _satisfies(constraints: Sequence[str], material: Material) -> Verdict:
    if not constraints:
        return _unconstrained()
    probabilities: dict[str, float] = {}
    undecidable: dict[str, str] = {}
    for constraint in constraints:
        word = undecidable_word(constraint)
        if word is None:
            probabilities[constraint] = _probability(constraint, material)
        else:
            undecidable[constraint] = word
    broken = {
        constraint: 1 - probability
        for constraint, probability in probabilities.items()
        if 1 - probability >= screens.CONSTRAINT_CONFIDENCE
    }
    if broken:
        return verdicts.failed(
            SATISFIES_CONSTRAINTS,
            [
                verdicts.finding(
                    verdict_pb2.FINDING_KIND_BROKEN_CONSTRAINT,
                    f"Nothing in the script takes up {quote(constraint)}.",
                    constraint=constraint,
                )
                for constraint in broken
            ],
            rationale=_measured(probabilities),
            confidence=max(broken.values()),
        )
    unsure = [
        constraint
        for constraint, probability in probabilities.items()
        if probability < screens.CONSTRAINT_CONFIDENCE
    ]
    if undecidable:
        named = ", ".join(f"{quote(constraint)} ({word})" for constraint, word in undecidable.items())
        return verdicts.abstained(
            SATISFIES_CONSTRAINTS,
            _NOT_SUPPORTED,
            f"Similarity shows neither absence nor quantity: {named}. {_measured(probabilities)}".rstrip(),
        )
    if unsure:
        return verdicts.abstained(
            SATISFIES_CONSTRAINTS, verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE, _measured(probabilities)
        )
    return verdicts.passed(
        SATISFIES_CONSTRAINTS,
        rationale=_measured(probabilities),
        confidence=math.prod(probabilities.values()),
    )


def _probability(constraint: str, material: Material) -> float:
    vectors = material.embedded.vectors
    script = material.script
    steps = material.step_vectors if material.candidate.steps else vectors[script][None]
    features = measure(constraint, vectors[constraint], script, vectors[script], steps)
    return screens.CONSTRAINT.probability(features)


def _measured(probabilities: dict[str, float]) -> str:
    if not probabilities:
        return ""
    listed = ", ".join(f"{quote(constraint)} {value:.2f}" for constraint, value in probabilities.items())
    return f"Probability that the script was written for the constraint: {listed}."


def _completes(goal: str, material: Material) -> Verdict:
    screen = screen_topic(
        material.embedded.vectors[goal],
        material.embedded.vectors[material.script],
        material.pool_script_vectors,
    )
    measured = (
        f"The script's cosine with the goal is {screen.similarity:.2f}; "
        f"below {screen.threshold:.2f} it is off topic."
    )
    if screen.off_topic:
        finding = verdicts.finding(
            verdict_pb2.FINDING_KIND_GOAL_NOT_REACHED,
            f"The script is about something else than {quote(goal)}.",
        )
        return verdicts.failed(COMPLETES_GOAL, [finding], rationale=measured)
    return verdicts.abstained(
        COMPLETES_GOAL,
        _NOT_SUPPORTED,
        f"{measured} Being on topic does not show that the goal is reached.",
    )


def _ordered(material: Material) -> Verdict:
    steps = material.candidate.steps
    if not steps:
        return _order_not_judged("No steps could be told apart in the candidate.")
    if len(steps) < screens.ORDER_MIN_STEPS:
        return _order_not_judged(
            f"The script has {len(steps)} steps; at least {screens.ORDER_MIN_STEPS} are needed."
        )
    pool = [script for script in material.pool_step_vectors if len(script) >= screens.ORDER_MIN_STEPS]
    if len(pool) < screens.ORDER_MIN_POOL:
        return _order_not_judged(
            f"The pool has {len(pool)} scripts of at least {screens.ORDER_MIN_STEPS} steps; "
            f"{screens.ORDER_MIN_POOL} are needed."
        )
    screen = screen_order(material.step_vectors, pool)
    measured = (
        f"Kendall's tau with the usual order of {len(pool)} other scripts is {screen.consistency:.2f}; "
        f"below {screen.threshold:.2f} the order is wrong."
    )
    if not screen.disordered:
        return _order_not_judged(f"{measured} Lesser errors, such as two swapped neighbours, go unseen.")
    finding = verdicts.finding(
        verdict_pb2.FINDING_KIND_WRONG_ORDER,
        f"{quote_all((steps[screen.earlier], steps[screen.later]))} usually come the other way round.",
        steps=(screen.earlier, screen.later),
    )
    return verdicts.failed(ORDER_CORRECT, [finding], rationale=measured)


def _order_not_judged(rationale: str) -> Verdict:
    return verdicts.abstained(ORDER_CORRECT, _NOT_SUPPORTED, rationale)


def _unconstrained() -> Verdict:
    return verdicts.abstained(
        SATISFIES_CONSTRAINTS, verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE, "The task has no constraints."
    )


def _without_vectors(constraints: Sequence[str], abstention: Abstention) -> list[Verdict]:
    first = (
        verdicts.abstained(SATISFIES_CONSTRAINTS, abstention.reason, abstention.explanation)
        if constraints
        else _unconstrained()
    )
    rest = (
        verdicts.abstained(criterion, abstention.reason, abstention.explanation)
        for criterion in (COMPLETES_GOAL, ORDER_CORRECT)
    )
    return [first, *rest]
