"""A program of a user, for type checkers: the types of the public API."""

from __future__ import annotations

from dramaturg import (
    ChannelSettings,
    DramaturgClient,
    ServiceError,
    Verdict,
    evaluate_pair,
    evaluate_scripts,
    evaluate_scripts_async,
    evaluate_texts,
)


def passes() -> dict[str, bool | None]:
    """Evaluates a script."""
    result = evaluate_scripts(
        goal="Make tea without a kettle",
        constraints=["without a kettle"],
        scripts={"a": "1. Heat water in a pot. 2. Put a tea bag in a cup. 3. Pour."},
    )
    cost: float = result.message.usage.cost_usd
    verdicts: list[Verdict] = [verdict for one in result.candidates for verdict in one.verdicts]
    faulty: set[int] = {step for verdict in verdicts for one in verdict.findings for step in one.steps}
    return {verdict.criterion: verdict.passed for verdict in verdicts if not faulty or cost}


async def judgements() -> int:
    """Evaluates the scripts of a list, and reads the summary of a run."""
    result = await evaluate_scripts_async("Make tea", [{"id": "a", "text": "1. Heat water."}])
    async with DramaturgClient("localhost:50051", settings=ChannelSettings()) as client:
        answer = await client.runs.summary("run")
    return answer.summary.judgement_count + len(result.candidates)


def preference() -> tuple[str | None, float | None] | str:
    """Compares two texts, and judges one by a rubric."""
    try:
        rated = evaluate_texts("Explain tea", ["Tea is a drink."], criteria={"polite": "The text is polite."})
        pair = evaluate_pair("A source.", "One summary.", "Another summary.")
    except ServiceError as error:
        fields = [violation.field for violation in error.violations]
        return f"{error.code.name} {error.reason_name}: {error.message} {fields}"
    return pair.comparisons[0].preferred, rated.candidates[0].verdicts[0].score
