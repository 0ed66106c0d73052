"""Evaluations of several models on many samples, for pages with all of their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from google.protobuf.json_format import ParseDict

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.judge.criteria import ABSEVAL
from tests.dramaturg.report.samples import PROVENANCE

MODELS = ("writer-large", "writer-small", "writer-tiny")
TOPICS = ("Food", "Travel", "Health", "Work")
LEVELS = ("easy", "medium", "hard", "N/A")

Result = Mapping[str, Any]


def many(kind: str, count: int, models: Sequence[str] = MODELS) -> Iterator[RunSample]:
    """Samples of a kind, as RunSample names its result; the same each time."""
    random = Random(kind)
    for place in range(count):
        tags = {"level": LEVELS[place % 4], "source": f"part {place % 3}"}
        result = {**_RESULTS[kind](random, place, models), "tags": tags}
        yield ParseDict(
            {
                "index": place,
                "sampleId": f"s{place}",
                "tags": tags,
                "state": "SAMPLE_STATE_SUCCEEDED",
                kind: result,
            },
            RunSample(),
        )


def _provenance(random: Random, role: str) -> Result:
    completion = {
        "requestedModel": "judge-1",
        "answeredModel": "judge-1-2026",
        "rawText": f"verdict {random.random()}: "
        + "the steps follow one another and the goal is reached. " * 4,
        "latency": f"{random.randint(1, 4)}.5s",
        "usage": {"promptTokenCount": "840", "completionTokenCount": "120", "costUsd": 0.002},
    }
    return {**PROVENANCE, "name": f"llm-{role}", "registeredName": "strict", "completions": [completion]}


def _verdict(random: Random, criterion: str, skill: float) -> Result:
    drawn = random.random()
    if drawn < 0.02:
        return {
            "criterion": criterion,
            "outcome": "OUTCOME_ABSTAIN",
            "abstainReason": random.choice(["ABSTAIN_REASON_TIMED_OUT", "ABSTAIN_REASON_UNPARSABLE"]),
        }
    if random.random() < skill:
        return {"criterion": criterion, "outcome": "OUTCOME_PASS", "rationale": "Nothing is missing here."}
    finding = {"stepIndices": [1], "description": "it repeats what the first step says"}
    return {
        "criterion": criterion,
        "outcome": "OUTCOME_FAIL",
        "confidence": 0.8,
        "rationale": "The second step repeats the first one, so that a reader would do it twice.",
        "findings": [finding],
    }


def _scripts(random: Random, place: int, models: Sequence[str]) -> Result:
    candidates = []
    for number, model in enumerate(models):
        verdicts = [_verdict(random, criterion, 0.95 - 0.12 * number) for criterion in ABSEVAL]
        panel = [{**verdicts[0], "outcome": "OUTCOME_PASS"}, *verdicts[1:3]]
        assessments = [
            {
                "role": role,
                "judge": judge,
                "assessment": {"verdicts": some, "provenance": _provenance(random, role)},
            }
            for role, judge, some in (
                ("critic", "strict", verdicts[:3]),
                ("critic", "lenient", panel),
                ("execute", "strict", verdicts[3:]),
            )
        ]
        steps = [{"text": f"step {step} of the plan for day {place}"} for step in range(5 + place % 5)]
        candidates.append(
            {
                "candidateId": f"c{number}",
                "model": model,
                "script": {"steps": steps},
                "verdicts": verdicts,
                "assessments": assessments,
            }
        )
    return {
        "task": {
            "id": f"t{place}",
            "goal": f"Plan day {place} of a trip on foot",
            "constraints": ["with one bag"],
            "topic": TOPICS[place % 4],
        },
        "goldAnswer": {"script": {"steps": [{"text": "pack the bag"}, {"text": "walk"}, {"text": "rest"}]}},
        "candidates": candidates,
        "usage": {
            "providerCallCount": "9",
            "promptTokenCount": "7560",
            "completionTokenCount": "1080",
            "costUsd": 0.018,
        },
    }


_OBJECTIVE = (
    ("General public", "Reads to learn what happened."),
    ("Editor", "Reads for style and wording."),
    ("Critic", "Reads for facts that are wrong or missing."),
)
_READERS = (
    (("Cook", "Prepares meals in a restaurant."), ("Chef", "Prepares meals in a restaurant kitchen.")),
    (("Physician", "Treats patients in a hospital."), ("Nurse", "Looks after patients in a hospital.")),
    (("Farmer", "Grows wheat and keeps cows."), ("Commuter", "Takes the bus to work.")),
    (("Astronomer", "Observes distant galaxies."), ("Sailor", "Works on a cargo ship.")),
)


def _role(name: str, description: str, origin: str) -> Result:
    return {"type": name, "description": description, "origin": f"ROLE_ORIGIN_{origin}"}


def _roles(place: int) -> list[Result]:
    readers = (_role(*one, "SUBJECTIVE_COARSE") for one in _READERS[place % len(_READERS)])
    return [*(_role(*one, "OBJECTIVE") for one in _OBJECTIVE), *readers]


def _comparison(random: Random, skill: float, roles: Sequence[Result] = ({},)) -> Result:
    orders = ("PRESENTATION_ORDER_AS_GIVEN", "PRESENTATION_ORDER_SWAPPED")
    votes = []
    for role in roles:
        ballots = [
            {
                "order": order,
                "preference": "PREFERENCE_FIRST" if random.random() < skill else "PREFERENCE_SECOND",
                "rationale": f"As {role['type']}, I find it clearer." if role else "I find it clearer.",
            }
            for order in orders
        ]
        same = ballots[0]["preference"] == ballots[1]["preference"]
        votes.append(
            {
                "role": role,
                "preference": ballots[0]["preference"] if same else "PREFERENCE_TIE",
                "inconsistent": not same,
                "ballots": ballots,
            }
        )
    share = sum(
        {"PREFERENCE_FIRST": 1.0, "PREFERENCE_TIE": 0.5}.get(str(vote["preference"]), 0.0) for vote in votes
    ) / len(votes)
    preference = (
        "PREFERENCE_FIRST" if share > 0.5 else "PREFERENCE_SECOND" if share < 0.5 else "PREFERENCE_TIE"
    )
    return {
        "preference": preference,
        "firstVoteShare": share,
        "votes": votes,
        "provenance": _provenance(random, "pair-judge"),
    }


def _pair(random: Random, place: int, models: Sequence[str]) -> Result:
    better = random.random() < 0.6
    human = "PREFERENCE_FIRST" if better else "PREFERENCE_SECOND"
    skill = 0.8 if better else 0.25
    roles = _roles(place)
    return {
        "id": f"p{place}",
        "firstModel": models[0],
        "secondModel": models[1],
        "firstText": f"The bridge at mile {place} was closed after the storm. " * 3,
        "secondText": f"After the storm, nobody could cross at mile {place}. " * 3,
        "roles": {
            "roles": roles,
            "clustered_roles": roles,
            "clustering": {
                "roles": roles,
                "clusters": [{"memberIndices": [3, 4], "keptIndices": [3, 4]}],
                "noiseIndices": [0, 1, 2],
                "map": {
                    "points": [{"x": random.uniform(-1, 1), "y": random.uniform(-1, 1)} for _ in roles],
                    "explainedShare": 0.71,
                },
            },
        },
        "humanPreference": human if place % 5 else 0,
        "longer": random.choice(["PREFERENCE_FIRST", "PREFERENCE_SECOND"]),
        "comparisons": [
            {"method": "roles", "judge": "roles", "comparison": _comparison(random, skill, roles)},
            {"method": "llm", "judge": "llm", "comparison": _comparison(random, 0.6 * skill + 0.2)},
        ],
        "textMetrics": ["rouge-l", "bleu"],
        "metricDifferences": {"rouge-l": random.uniform(-1, 1) + skill - 0.5, "bleu": random.uniform(-1, 1)},
    }


def _decision(random: Random, place: int, models: Sequence[str]) -> Result:
    gold = random.choice(["CHOICE_OPTION_1", "CHOICE_OPTION_2", "CHOICE_EITHER"])
    choices: list[Result] = []
    for number, model in enumerate(models):
        for prompt in ("DECISION_PROMPT_NAIVE", "DECISION_PROMPT_STORY"):
            for swapped in (False, True):
                base = {
                    "model": model,
                    "prompt": prompt,
                    "optionsSwapped": swapped,
                    "provenance": _provenance(random, "author"),
                }
                if random.random() < 0.04:
                    choices.append({**base, "abstainReason": "ABSTAIN_REASON_UNPARSABLE"})
                    continue
                right = random.random() < 0.85 - 0.15 * number - 0.1 * (place % 4)
                chosen = (
                    gold if right else "CHOICE_OPTION_1" if gold != "CHOICE_OPTION_1" else "CHOICE_OPTION_2"
                )
                choices.append(
                    {**base, "choice": chosen, "correct": right, "text": f"The answer is {chosen}."}
                )
    return {
        "decision": {
            "id": f"d{place}",
            "goal": "get home from the party",
            "option1": "walk through the park",
            "option2": "call a taxi",
            "scenario": f"It is {place % 12 + 1} o'clock and it rains; the park is closed for the night.",
        },
        "gold": gold,
        "choices": choices,
    }


def _dialogue(random: Random, place: int, models: Sequence[str]) -> Result:
    ratings: list[Result] = []
    replies: list[Result] = []
    for number, model in enumerate(models):
        if random.random() < 0.05:
            replies.append({"model": model, "abstainReason": "ABSTAIN_REASON_TRUNCATED"})
            continue
        replies.append(
            {
                "model": model,
                "text": f"total {place}\na.txt  b.txt",
                "provenance": _provenance(random, "reply"),
            }
        )
        for judge in ("strict", "lenient"):
            value = min(10, max(1, round(random.gauss(8.5 - 1.5 * number, 1.2))))
            rating = {
                "value": value,
                "rationale": "The listing is plausible.",
                "provenance": _provenance(random, "rating"),
            }
            ratings.append({"model": model, "judge": judge, "rating": rating})
    turns: Sequence[tuple[str, str]] = [
        ("SPEAKER_USER", "ls"),
        ("SPEAKER_SIMULATOR", "a.txt"),
        ("SPEAKER_USER", "touch b.txt && ls"),
    ]
    task = ("Linux terminal", "Password generator", "Chess player", "Train conductor")[place % 4]
    return {
        "script": {
            "id": f"s{place}",
            "task": {
                "name": task,
                "description": f"Act as a {task}.",
                "kind": "SIMULATION_KIND_STATEFUL" if place % 2 else "SIMULATION_KIND_STATELESS",
            },
            "utterances": [{"speaker": speaker, "text": text} for speaker, text in turns],
            "subset": ("SCRIPT_SUBSET_LAST_ONLY", "SCRIPT_SUBSET_FIRST_CHALLENGE")[place // 4 % 2],
            "turn": 2,
        },
        "replies": replies,
        "ratings": ratings,
        "comparisons": [
            {
                "firstModel": models[0],
                "secondModel": models[1],
                "judge": "llm",
                "comparison": _comparison(random, 0.7),
            }
        ],
        "scores": [
            {
                "model": model,
                "judge": "words",
                "attribute": "toxicity",
                "score": {"value": random.random() * 0.6},
            }
            for model in models
        ],
    }


def _graphs(random: Random, place: int, models: Sequence[str]) -> Result:
    texts = (
        "find a recipe",
        "buy flour and eggs",
        "preheat the oven",
        "mix the dough",
        "bake the cake",
        "eat it",
    )
    events = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    wanted = [("0", "1"), ("1", "3"), ("2", "4"), ("3", "4"), ("4", "5")]
    graphs: list[Result] = []
    for number, model in enumerate(models):
        if random.random() < 0.06:
            graphs.append({"model": model, "abstainReason": "ABSTAIN_REASON_UNPARSABLE"})
            continue
        edges = [edge for edge in wanted if random.random() < 0.95 - 0.15 * number]
        edges += [("0", "2")] if random.random() < 0.3 + 0.1 * number else []
        matched = len(set(edges) & set(wanted))
        precision, recall = matched / max(1, len(edges)), matched / len(wanted)
        f1 = 2 * precision * recall / (precision + recall) if matched else 0.0
        missing, extra = len(wanted) - matched, len(edges) - matched
        measures = {
            "precision": precision,
            "recall": recall,
            "f1": f1,
            "iou": matched / (len(wanted) + extra),
            "edgeDifference": missing + extra,
            "extraEdges": extra,
            "missingEdges": missing,
        }
        distance = missing + extra
        graphs.append(
            {
                "model": model,
                "graph": {
                    "events": events,
                    "edges": [{"sourceId": source, "targetId": target} for source, target in edges],
                },
                "score": {
                    "measures": measures,
                    "exactMatch": not distance,
                    "counts": {"shared": matched, "predicted": len(edges), "reference": len(wanted)},
                },
                "distance": {
                    "distance": distance,
                    "lowerBound": distance,
                    "upperBound": distance,
                    "proven": True,
                },
                "provenances": [_provenance(random, "author")],
            }
        )
    edges_of = [{"sourceId": source, "targetId": target} for source, target in wanted]
    return {
        "reference": {"id": f"g{place}", "scenario": "bake a cake", "events": events, "edges": edges_of},
        "task": "GRAPH_TASK_PREDICT_EDGES",
        "graphs": graphs,
    }


def _texts(random: Random, place: int, models: Sequence[str]) -> Result:
    texts = []
    for number, model in enumerate(models):
        polite = _verdict(random, "is_polite", 0.9 - 0.15 * number)
        score = min(5, max(1, round(random.gauss(4.4 - number, 0.8))))
        clear = {
            "criterion": "is_clear",
            "outcome": "OUTCOME_SCORED",
            "score": score,
            "rationale": "It is short.",
        }
        assessments = [
            {
                "candidateId": f"c{number}",
                "role": "rubric",
                "judge": judge,
                "assessment": {
                    "verdicts": [polite, {**clear, "score": min(5, score + shift)}],
                    "provenance": _provenance(random, "rubric"),
                },
            }
            for judge, shift in (("strict", 0), ("lenient", place % 2))
        ]
        texts.append(
            {
                "textId": f"c{number}",
                "model": model,
                "text": f"Dear all, thank you for day {place}.",
                "verdicts": [polite, clear],
                "assessments": assessments,
            }
        )
    return {
        "task": {"id": f"x{place}", "goal": f"Thank the team for day {place}", "topic": TOPICS[place % 4]},
        "criteria": [
            {
                "id": "is_polite",
                "description": "The text is polite.",
                "passes": "it thanks",
                "fails": "an insult",
            },
            {"id": "is_clear", "description": "The text is clear.", "scale": {"lowest": 1, "highest": 5}},
        ],
        "texts": texts,
    }


def _simulation(random: Random, place: int, models: Sequence[str]) -> Result:
    del models
    turns = random.randint(1, 4)
    utterances: list[Result] = []
    for turn in range(1, turns + 1):
        strategy = random.choice(("next-step", "new-request")) if turn > 1 else ""
        utterances.append(
            {"speaker": "SPEAKER_USER", "text": f"request {place}.{turn}", "strategy": strategy}
        )
        utterances.append({"speaker": "SPEAKER_SIMULATOR", "text": f"answer {place}.{turn}"})
    task = {"name": "Shell", "description": "Act as a shell.", "kind": "SIMULATION_KIND_STATEFUL"}
    early = "" if turns == 4 else f"turn {turns + 1}: the user agent has no usable request (EMPTY)"
    return {
        "task": task,
        "utterances": utterances,
        "turnCount": turns,
        "challengingTurn": random.choice((0, turns)),
        "challengeJudge": "finder",
        "endedEarly": early,
        "scripts": [{"task": task, "subset": "SCRIPT_SUBSET_LAST_ONLY", "turn": turns}],
    }


def _scenarios(random: Random, place: int, models: Sequence[str]) -> Result:
    written: list[Result] = []
    for number, model in enumerate(models):
        for target in ("CHOICE_OPTION_1", "CHOICE_OPTION_2"):
            one: dict[str, Any] = {"id": f"option-{target[-1]}/{number}", "model": model, "target": target}
            drawn = random.random()
            if drawn < 0.05:
                written.append(
                    {**one, "abstainReason": "ABSTAIN_REASON_TIMED_OUT", "failure": "no answer in time"}
                )
                continue
            if drawn < 0.1:
                written.append(
                    {**one, "failureReason": "ABSTAIN_REASON_REFUSED", "failure": "the model refuses"}
                )
                continue
            written.append(
                {
                    **one,
                    "scenario": f"is {place} km from a screen",
                    "baseScenario": "has no screen at home",
                    "leaksOption": random.random() < 0.1 + 0.1 * number,
                    "duplicateOf": written[0]["id"] if written and random.random() < 0.2 else "",
                    "provenance": _provenance(random, "author"),
                }
            )
    return {
        "brief": {"goal": f"watch film {place}", "option1": "go to a cinema", "option2": "watch it at home"},
        "id": f"b{place}",
        "form": "SCENARIO_FORM_HARD_VERB_PHRASE",
        "scenarios": written,
        "duplicateThreshold": 0.9,
        "duplicatesUnchecked": "no service of the role embedding",
    }


_RESULTS: Mapping[str, Callable[[Random, int, Sequence[str]], Result]] = {
    "scripts": _scripts,
    "texts": _texts,
    "pair": _pair,
    "decision": _decision,
    "dialogue": _dialogue,
    "graphs": _graphs,
    "simulation": _simulation,
    "scenarios": _scenarios,
}
