"""A critic in a few lines: it finds steps that say the same, word for word, and abstains from the rest.

Start it:     python examples/judges/terse_critic.py --port 50099
Check it:     dramaturg conformance critic --target localhost:50099
Register it:  [[gateway.judges]]  role = "critic", name = "terse", target = "localhost:50099"
"""

from __future__ import annotations

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import roles
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract, serve
from dramaturg.judge.criteria import NO_DUPLICATE_STEPS
from dramaturg.judge.verdicts import failed, finding, passed


class TerseCritic:
    """Judges no_duplicate_steps of candidates with steps. Other criteria abstain automatically."""

    name = "terse-critic"
    version = "1.0.0"
    description = "Finds steps that say the same, word for word."
    criteria = roles.CRITIC.criteria
    capabilities = ()

    async def judge(self, item: JudgeItem) -> Assessment:
        """Compares each step with those before it."""
        places: dict[str, list[int]] = {}
        for index, step in enumerate(item.candidate.steps):
            places.setdefault(" ".join(step.casefold().split()), []).append(index)
        findings = [
            finding(verdict_pb2.FINDING_KIND_DUPLICATE_STEP, "These steps say the same.", steps=steps)
            for steps in places.values()
            if len(steps) > 1
        ]
        verdict = failed(NO_DUPLICATE_STEPS, findings) if findings else passed(NO_DUPLICATE_STEPS)
        return Assessment(verdicts=[verdict] if item.candidate.steps else [])


if __name__ == "__main__":
    serve(judge_contract(TerseCritic()))
