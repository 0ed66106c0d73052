"""A critic in twenty lines: it finds steps that say the same, word for word, and abstains from the rest.

Start it:     python examples/judges/terse_critic.py --port 50099
Check it:     dramaturg judges check critic localhost:50099
Register it:  [[gateway.judges]]  role = "critic", name = "terse", target = "localhost:50099"
"""

from dramaturg.api.common.v1.verdict_pb2 import FINDING_KIND_DUPLICATE_STEP, Assessment
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract, serve
from dramaturg.judge.criteria import NO_DUPLICATE_STEPS
from dramaturg.judge.roles import CRITIC
from dramaturg.judge.verdicts import failed, finding, passed


class TerseCritic:
    name, version, description = "terse-critic", "1.0.0", "Finds steps that say the same, word for word."
    criteria, capabilities = CRITIC.criteria, ()  # a criterion without a verdict abstains

    async def judge(self, item: JudgeItem) -> Assessment:
        places: dict[str, list[int]] = {}
        for index, step in enumerate(item.candidate.steps):
            places.setdefault(" ".join(step.casefold().split()), []).append(index)
        same = [steps for steps in places.values() if len(steps) > 1]
        faults = [finding(FINDING_KIND_DUPLICATE_STEP, "They say the same.", steps=one) for one in same]
        verdict = failed(NO_DUPLICATE_STEPS, faults) if faults else passed(NO_DUPLICATE_STEPS)
        return Assessment(verdicts=[verdict] if places else [])


if __name__ == "__main__":
    serve(judge_contract(TerseCritic()))
