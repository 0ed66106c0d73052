from __future__ import annotations

import pytest

from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, PromptReference, Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from dramaturg.judge.verdicts import passed
from dramaturg.results.kind import JudgeAnswer
from dramaturg.results.setups import Setup, setup_changes, setup_of, setups_of
from dramaturg.summaries.comparison import read_samples
from gateway.evaluations.kinds import SUMMARIES
from gateway.evaluations.summary import Summarizer
from tests.dramaturg.report.many import many

LLM = Setup("critic", "llm", "llm-critic", "1", "a", (("critique", "ab"),))
UNSTATED = Setup("critic", "llm", "", "", "", ())


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        ({LLM}, []),
        # A judge that failed, or that made no call, states less and is the same.
        ({LLM, UNSTATED, LLM._replace(model="")}, []),
        ({UNSTATED}, []),
        (
            {LLM._replace(version="2")},
            ["new: the judge 'llm' of critic has the version 'llm-critic 2', not 'llm-critic 1'"],
        ),
        (
            {LLM, LLM._replace(model="b")},
            ["new: the judge 'llm' of critic has the model 'a' and 'b', not 'a'"],
        ),
        ({LLM._replace(model="")}, ["new: the judge 'llm' of critic has the model none, not 'a'"]),
        (
            {LLM._replace(prompts=(("critique", "cd"), ("rules", "ab")))},
            ["new: the judge 'llm' of critic has other prompts (critique, rules)"],
        ),
        ({LLM._replace(judge="ours")}, ["new: the judges of critic are 'ours', not 'llm'"]),
        (
            {LLM, LLM._replace(role="execute")},
            ["new: the judges of execute are 'llm', not none"],
        ),
    ],
)
def test_what_differs_is_named(after: set[Setup], changes: list[str]) -> None:
    assert setup_changes({"old": {LLM}, "new": after}) == changes


def test_each_result_is_compared_with_the_first() -> None:
    other = LLM._replace(judge="ours")
    found = setup_changes({"a": {LLM}, "b": {LLM}, "c": {other}, "d": {other}})
    assert [one.partition(":")[0] for one in found] == ["c", "d"]


def test_the_model_is_the_one_that_answered() -> None:
    made = Provenance(
        name="n", version="1", completions=[CompletionReference(requested_model="a", answered_model="a-2026")]
    )
    made.prompts.extend([PromptReference(name=name, sha256="x") for name in ("b", "a")])
    assert setup_of(JudgeAnswer("critic", "llm", made, False)) == Setup(
        "critic", "llm", "n", "1", "a-2026", (("a", "x"), ("b", "x"))
    )


@pytest.mark.parametrize("kind", ["scripts", "texts", "pair", "dialogue", "graphs"])
def test_results_have_the_judges_of_their_summary(kind: str) -> None:
    samples = list(many(kind, 8))
    summarizer = Summarizer(SUMMARIES, SummaryOptions())
    for one in samples:
        summarizer.add(one)
    figures = summarizer._judges.values()
    assert figures or kind == "graphs"
    assert read_samples(samples, "run", by_sample=False).setups == setups_of(figures)


def test_members_of_panels_are_judges() -> None:
    sample = RunSample(sample_id="s")
    candidate = sample.scripts.candidates.add(candidate_id="c", verdicts=[passed("executable")])
    sample.scripts.task.id = "t"
    for member in ("a", "b"):
        candidate.assessments.append(
            CandidateAssessment(
                role="critic",
                judge=member,
                panel="both",
                assessment=Assessment(verdicts=[passed("executable")], provenance=Provenance(name=member)),
            )
        )
    found = read_samples([sample], "run", by_sample=False).setups
    assert {one.judge for one in found} == {"a", "b"}
