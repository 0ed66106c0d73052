"""The templates of the corpus of answers.

A template stands for a form in which models answer. VALUE, OTHER, REASON and the like are replaced; the label
is the value, or null for a template that a careful reader would not read. Labels come from the templates,
never from a parser. ``asked_again`` marks answers whose value only somebody who understands the language can
tell: the reader refuses them, and the model is asked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import cycle, islice
from typing import Any

VARIANTS = 7
"""The number of answers made of each template."""

REASONS = [
    "The response follows the format of a terminal and prints exactly the files that were created before.",
    "It stays in character but forgets the door that was opened two turns earlier.",
    "The output is well formed; the prompt sign is missing, which the task asks for.",
    "All constraints are respected, and nothing is added.",
    "The reply answers the last request in full and agrees with what was said before.",
    "It explains itself in prose although only the board was asked for.",
    "Step by step the script leads to the goal; the oven is heated in time.",
    "The order is plausible, and every tool that is used was fetched before.",
    "Nothing superfluous stands in it. The wording is plain.",
    "It is fluent and short, but one of the two figures in the source is wrong.",
    "The summary names the court, the ruling and the date, and leaves out the background.",
    "Compared with the other one, it is closer to the source.",
]


def fill(template: str, index: int, **values: Any) -> str:
    text = template.replace("REASON", REASONS[index % len(REASONS)])
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


Row = dict[str, Any]

ASKED_AGAIN = {
    "rating": r"Score: |I would rate it",
    "challenge_turn": r"challenging turn is|Turn number: |, as the reply",
    "pair_vote": r"because it is closer|is better|The better text",
    "rubric": r" points\"",
    "yes_no": r"(?is)\byes\b.* no other way",
    "decision_choice": r"(?is)^(?!<think>Option|.*\n\nAnswer:).*(?:option 1\b.*option 2\b|option 2\b.*option 1\b)"
    r"|I would choose|I'd go with|Doe should|It is best|would be|is the better|Therefore|is best|no difference|"
    r"doesn't matter|^Both |^Either option |- it is quicker|, because it",
}
"""Patterns of the answers in free prose, by kind."""


def rows(
    read: Sequence[str],
    unclear: Sequence[str],
    values: Sequence[Any],
    label: Callable[[Any], Any] = lambda value: value,
    **more: Callable[[Any], Any],
) -> Iterator[Row]:
    """Rows of templates: VALUE is the value of a row, OTHER another one."""
    for templates, is_read in ((read, True), (unclear, False)):
        for number, template in enumerate(templates):
            chosen = islice(cycle(values), number, number + VARIANTS)
            for index, value in enumerate(chosen):
                other = values[(values.index(value) + 1) % len(values)]
                named = {name: make(value) for name, make in more.items()}
                text = fill(template, number + index, OTHER=other, **named, VALUE=value)
                yield {"text": text, "read": label(value) if is_read else None}


RATINGS_READ = [
    '{"reason": "REASON", "rating": VALUE}',
    '{\n  "reason": "REASON",\n  "rating": VALUE\n}',
    '```json\n{"reason": "REASON", "rating": VALUE}\n```',
    'Here is my evaluation:\n\n```json\n{\n    "reason": "REASON",\n    "rating": VALUE\n}\n```',
    '{"reason": "REASON", "rating": "VALUE"}',
    '{"reason": "REASON", "rating": "VALUE/10"}',
    '{"reason": "REASON", "rating": "VALUE out of 10"}',
    '{"reason": "REASON", "rating": "[[VALUE]]"}',
    '{"reason": "REASON", "rating": "**VALUE**"}',
    '{"reason": "REASON", "rating": VALUE.0}',
    '{"rating": VALUE, "reason": "REASON"}',
    '{"rating": VALUE}',
    '{"Reason": "REASON", "Rating": VALUE}',
    '{"reason": "REASON", "rating": VALUE, "confidence": "high"}',
    '{"reason": "REASON", "rating": VALUE,}',
    "{'reason': 'REASON', 'rating': VALUE}",
    '{reason: "REASON", rating: VALUE}',
    '{"reason": "He typed "ls -la" first. REASON", "rating": VALUE}',
    '{"reason": "REASON\nREASON", "rating": VALUE}',
    '{"reason": "A path such as C:\\Users\\doe is odd. REASON", "rating": VALUE}',
    '{"reason": "REASON"\n "rating": VALUE}',
    '[{"reason": "REASON", "rating": VALUE}]',
    '{"evaluation": {"reason": "REASON", "rating": VALUE}}',
    '{"reason": "REASON", "rating": VALUE}\n\n{"reason": "REASON", "rating": VALUE}',
    '<think>Perhaps {"rating": OTHER}? No.</think>\n{"reason": "REASON", "rating": VALUE}',
    'I thought about it. </think>{"reason": "REASON", "rating": VALUE}',
    "REASON\n\nRating: VALUE",
    "REASON\n\nRating: [[VALUE]]",
    "REASON\n\n**Rating:** VALUE/10",
    "**Rating: VALUE**\n\nREASON",
    "REASON My rating is VALUE.",
    "REASON\n\nFinal rating: VALUE out of 10.",
    "[[VALUE]]",
    "VALUE",
    "VALUE/10",
    "REASON\n\n$\\boxed{VALUE}$",
    'The response claims "Rating: OTHER". REASON\n\nRating: VALUE',
    "REASON\n\nScore: VALUE",
    "> Rating: OTHER\n\nREASON\n\nRating: VALUE",
    "REASON I would rate it VALUE/10.",
]
RATINGS_UNCLEAR = [
    '{"reason": "REASON", "rating": VALUE or OTHER}',
    '{"reason": "REASON", "rating": VALUE, OTHER}',
    '{"reason": "REASON", "rating": VALUE - OTHER}',
    '{"reason": "REASON", "rating": VALUE OTHER}',
    '{"reason": "REASON", "rating": "VALUE or OTHER"}',
    '{"reason": "REASON", "rating": "VALUE-OTHER"}',
    '{"reason": "REASON", "rating": VALUE.5}',
    '{"reason": "REASON", "rating": "VALUE/5"}',
    '{"reason": "REASON", "rating": 1VALUE}',
    '{"reason": "REASON", "rating": null}',
    '{"reason": "REASON", "rating": [VALUE, OTHER]}',
    '{"reason": "REASON", "rating": VALUE, "final_rating": OTHER}',
    '{"reason": "REASON", "rating": VALUE, "rating": OTHER}',
    '{"reason": "REASON", "rating": VALUE',
    '{"reason": "REASON", "rating": VALUE} My own rating is OTHER.',
    '{"reason": "REASON", "rating": VALUE}\n\n{"reason": "REASON", "rating": OTHER}',
    '<think>Maybe {"reason": "REASON", "rating": VALUE}',
    "<think>REASON Rating: VALUE",
    "Rating: VALUE or OTHER. REASON",
    "Rating: VALUE\n\nREASON\n\nRating: OTHER",
    "REASON It is somewhere between VALUE and OTHER.",
    "I cannot rate this response.",
    'The candidate itself writes "Rating: VALUE/10". REASON',
    '{"reason": "REASON", "rating": VALUE /* or OTHER */}',
    '{"reason": "REASON", "rating": "/10"}',
    "REASON\n\nRating: /10",
    "REASON\n\n**Rating:** out of 10",
    "REASON\n\nRating: <VALUE",
    "REASON\n\nRating: -VALUE",
    "REASON\n\nRating: 0VALUE",
    '"> Rating: VALUE\n\nREASON"',
    '"The response claims "Rating: VALUE". REASON"',
]
VERDICT_SECTION = '{"reason": "REASON", "findings": [], "verdict": "VALUE"}'
VERDICTS_READ = [
    '{"no_duplicate_steps": ' + VERDICT_SECTION + "}",
    '{\n "no_duplicate_steps": {\n  "reason": "REASON",\n  "findings": [],\n  "verdict": "VALUE"\n }\n}',
    '```json\n{"no_duplicate_steps": ' + VERDICT_SECTION + "}\n```",
    'Sure! Here it is:\n{"no_duplicate_steps": ' + VERDICT_SECTION + "}",
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "UPPER"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "TITLE."}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "**VALUE**"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": " VALUE "}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUEed"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "verdict": "VALUE"}}',
    '{"no_duplicate_steps": {"findings": [], "verdict": "VALUE"}}',
    '{"no_duplicate_steps": {"verdict": "VALUE"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE", "severity": "low"}}',
    '{"no_duplicate_steps": ' + VERDICT_SECTION + ', "note": "n"}',
    '{"No_Duplicate_Steps": {"Reason": "REASON", "Findings": [], "Verdict": "VALUE"}}',
    '{"no duplicate steps": ' + VERDICT_SECTION + "}",
    "{'no_duplicate_steps': {'reason': 'REASON', 'findings': [], 'verdict': 'VALUE'}}",
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE",},}',
    '{"no_duplicate_steps": {"reason": "Step 2 says "mix" again? REASON", "findings": [], "verdict": "VALUE"}}',
    '{"no_duplicate_steps": {"reason": "REASON\nREASON", "findings": [], "verdict": "VALUE"}}',
    '{"verdicts": {"no_duplicate_steps": ' + VERDICT_SECTION + "}}",
    '[{"no_duplicate_steps": ' + VERDICT_SECTION + "}]",
    '<think>{"no_duplicate_steps": {"verdict": "OTHER"}}</think>{"no_duplicate_steps": '
    + VERDICT_SECTION
    + "}",
    '{"no_duplicate_steps": "VALUE"}',
    '{"walk": "REASON", "no_duplicate_steps": ' + VERDICT_SECTION + "}",
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE - see above"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [{"steps": [], "problem": "None. There are no such steps."}], "verdict": "pass"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [{"steps": [1, 3], "problem": "The same."}], "verdict": "fail"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [{"steps": ["1", "3"], "problem": "The same."}], "verdict": "FAIL"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [{"problem": "Steps 1 and 3."}], "verdict": "fail"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": null, "verdict": "VALUE"}}',
]
VERDICTS_UNCLEAR = [
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "pass or fail"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "pass/fail"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE", "OTHER"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "not VALUE"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE?"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "unsure"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": true}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": null}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "yes"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE, but OTHER later"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE", "final_verdict": "OTHER"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE", "verdict": "OTHER"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [{"steps": [1, 3], "problem": "The same."}], "verdict": "pass"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [{"steps": [77], "problem": "The same."}], "verdict": "fail"}}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE"}',
    '{"no_duplicate_steps": {"reason": "REASON", "findings": [], "verdict": "VALUE',
    '<think>{"no_duplicate_steps": ' + VERDICT_SECTION + "}",
    "I am sorry, but I cannot judge this script.",
    '{"no_duplicate_steps": ' + VERDICT_SECTION + '}\n{"no_duplicate_steps": {"verdict": "OTHER"}}',
    '{"reason": "REASON"}',
]
VOTES_READ = [
    '{"reason": "REASON", "vote": "VALUE"}',
    '```json\n{"reason": "REASON", "vote": "VALUE"}\n```',
    '{"reason": "REASON", "vote": "TITLE"}',
    '{"reason": "REASON", "vote": "VALUE."}',
    '{"reason": "REASON", "vote": "[[VALUE]]"}',
    '{"reason": "REASON", "vote": "**VALUE**"}',
    '{"vote": "VALUE"}',
    '{"Vote": "VALUE", "Reason": "REASON"}',
    '{"reason": "REASON", "vote": "VALUE", "confidence": 0.8}',
    '{"reason": "REASON", "vote": "VALUE",}',
    "{'reason': 'REASON', 'vote': 'VALUE'}",
    '{"reason": "It says "no" twice. REASON", "vote": "VALUE"}',
    '[{"reason": "REASON", "vote": "VALUE"}]',
    '{"result": {"reason": "REASON", "vote": "VALUE"}}',
    '<think>{"vote": "OTHER"}</think>{"reason": "REASON", "vote": "VALUE"}',
    "REASON\n\nVote: VALUE",
    "REASON\n\n**Vote:** VALUE",
    "REASON\n\nVote: [[VALUE]]",
    "REASON\n\nMy vote is VALUE.",
    "[[VALUE]]",
    "VALUE",
    "\\boxed{VALUE}",
    "REASON\n\nFinal answer: VALUE",
    '{"reason": "REASON", "vote": "VALUE because it is closer to the source"}',
]
NUMBER_VOTES_READ = [
    '{"reason": "REASON", "vote": VALUE}',
    '{"reason": "REASON", "vote": "Text VALUE"}',
    '{"reason": "REASON", "vote": "text VALUE"}',
    '{"reason": "REASON", "vote": "Text VALUE is better"}',
    "REASON\n\nText VALUE is better.",
    "Text VALUE",
    "REASON\n\nVote: Text VALUE",
    "REASON\n\nThe better text is text VALUE.",
]
VOTES_UNCLEAR = [
    '{"reason": "REASON", "vote": "VALUE or OTHER"}',
    '{"reason": "REASON", "vote": "VALUE", "OTHER"}',
    '{"reason": "REASON", "vote": "VALUE/OTHER"}',
    '{"reason": "REASON", "vote": "not VALUE"}',
    '{"reason": "REASON", "vote": "Text 3"}',
    '{"reason": "REASON", "vote": null}',
    '{"reason": "REASON", "vote": true}',
    '{"reason": "REASON", "vote": 1 or 2}',
    '{"reason": "REASON", "vote": 12}',
    '{"reason": "REASON"}',
    '{"reason": "REASON", "vote": "VALUE", "vote": "OTHER"}',
    '{"reason": "REASON", "vote": "VALUE", "final_vote": "OTHER"}',
    '{"reason": "REASON", "vote": "VALUE"} Actually, my vote is OTHER.',
    '{"reason": "REASON", "vote": "VALUE',
    '<think>{"reason": "REASON", "vote": "VALUE"}',
    "Vote: VALUE\n\nREASON\n\nVote: OTHER",
    "Both texts have their merits. REASON",
    "I can't compare these.",
]
DECISIONS_READ = [
    "Option VALUE", "Option VALUE.", "option VALUE", "**Option VALUE**", "VALUE", "VALUE.", "(VALUE)", "VALUE) Option VALUE",
    "Answer: Option VALUE", "The answer is Option VALUE.", "Final answer: Option VALUE", "I would choose option VALUE.",
    "\\boxed{Option VALUE}", "$\\boxed{\\text{Option VALUE}}$", "[[VALUE]]", '"Option VALUE"', "Option VALUE: WORDS",
    "Option VALUE (WORDS)", "WORDS", "Doe should WORDS.", "It is best to WORDS.", "Option VALUE, because it is quicker.",
    "Option VALUE\n\nIt takes less time and needs no computer.", "Option VALUE. Option OTHER takes much longer here.",
    "Option VALUE, since option OTHER is not possible without a telephone.",
    "Option OTHER needs a computer, which he has not got.\n\nAnswer: Option VALUE",
    "<think>Option OTHER?</think>\n\nOption VALUE", "<think>\nHm.\n</think>\n\n**Option VALUE**",
    "Option VALUE would be the better choice.", "Given the circumstances, option VALUE is the better way to reach the goal.",
    "Therefore, Option VALUE.", "Option VALUE is best.", "I'd go with option VALUE.", "Option VALUE - it is quicker",
    "I would choose option VALUE over option OTHER.",
]  # fmt: skip
CHOICE_REASONS = [
    "He has no telephone at hand.", "It takes less time.", "Option OTHER takes much longer.", "The scenario says that it is raining.",
    "Option OTHER would need an internet connection, which is missing here.", "That is what most people would do.",
    "He cannot use option OTHER without a computer.", "The library is known to answer quickly.", "Nothing else is needed for it.",
    "Option OTHER is out of reach at that hour.",
]  # fmt: skip
CHOICE_LEADS = [
    "Option VALUE. ", "**Option VALUE**. ", "Answer: Option VALUE. ", "The answer is option VALUE. ", "Option VALUE\n\n",
    "**Option VALUE**\n\n", "I would choose option VALUE. ", "<think>Hm.</think>Option VALUE. ", "Option VALUE! ",
]  # fmt: skip
EITHER_READ = [
    "Either", "Either.", "**Either**", "3", "3)", "Option 3", "either one", "Either: it makes little difference",
    "It makes little difference.", "It makes no difference", "Both", "Both options", "Both are possible.",
    "Either option works.", "Either one would be fine.", "3) Either", "Answer: Either", "<think>Option 1</think>Either",
    "Either. Option 1 and option 2 both reach the goal.", "\\boxed{Either}", "It doesn't matter.",
    "3) Either: both serve the goal about equally well, it makes little difference",
    "3) Either, as both come to about the same for the Goal",
    "3) Either one, since they have similar effect when it comes to the goal",
]  # fmt: skip
DECISIONS_UNCLEAR = [
    "Option 1 or option 2", "Option 1 and option 2", "Neither", "Not option VALUE.", "Option VALUE is not feasible.",
    "Option VALUE?", "Option VALUE? Hmm, option OTHER.", "Option VALUE. But option OTHER is better.", "It depends.",
    "It depends. Option VALUE if he has time.", "Maybe option VALUE.", "If it rains, option VALUE.", "The other one.",
    "<think>\nOption VALUE", "<think>Option VALUE, because", "Option VALUE. Wait, I mean option OTHER.", "Option 4",
    "Option 12", "", "I cannot decide between the two.", "Anything but option VALUE.", "Option VALUE would be worse.",
    "Option VALUE is cheaper. Option OTHER is quicker.", "VALUE or OTHER", "The library is closed today.",
    "Answer: option VALUE\nAnswer: option OTHER", "It makes little difference, but option VALUE is better.",
    "Option VALUE, because option OTHER", "I'm sorry, I can't help with that.",
]  # fmt: skip
CHOICE_DOUBTS = [
    "So it is hard to say.",
    "I can't decide.",
    "Maybe option VALUE?",
    "It depends on the weather.",
]
ORDER_REASONS = [
    "The flour has to be bought before it can be mixed.", "Event A makes what event B uses.", "They are independent of each other.",
    "The oven has to be hot first.", "Both happen at the same place.", "One cannot eat what is not baked.",
    "There is no other way to get the dough.", "It follows from the scenario.", "The order is not fixed by anything.",
]  # fmt: skip
ORDER_LEADS = ["WORD. ", "**WORD**. ", "WORD, because: ", "Answer: WORD. ", "WORD\n\n"]
YES_NO_READ = [
    "WORD", "WORD.", "UPPERWORD", "**WORD**", "**WORD.**", "WORD!", "Answer: WORD", "The answer is WORD.", "Final answer: WORD",
    "WORD, event A has to be over first.", "WORD. The dough must rest before it is baked.", "WORD\n\nThe oven is needed first.",
    "WORD - the order matters here", "<think>Hm, perhaps so.</think>WORD", "<think>\n\n</think>\n\nWORD.", "`WORD`", '"WORD"',
    "\\boxed{WORD}", "$\\boxed{\\text{WORD}}$", "- WORD", "  WORD  ", "WORD, since the flour is bought in event A.",
    "WORD; the two are independent of each other in time.", "Answer: **WORD**", "WORD: it follows from the scenario.",
    "*WORD*, as the second uses what the first makes.", "WORD (with confidence)", "WORD – the shop opens at nine.",
]  # fmt: skip
YES_NO_UNCLEAR = [
    "Yes and no.", "Yes or no", "No, wait, yes.", "Yes. No, wait.", "It depends.", "Maybe.", "I think so.", "", "yesterday",
    "Noon", "Not necessarily.", "<think>WORD", "<think>WORD, because", "Event A comes first.", "Possibly WORD, possibly not.",
    "One cannot say WORD here.", "The answer is unclear.", "Yes/No", "WORD or the contrary, I cannot tell: yes, no.", "N", "Y/N",
    "Is it WORD?", "I'm not able to answer that.", "I would not say WORD.", "Both could be true.",
]  # fmt: skip
TURNS_READ = [
    text.replace("rating", "turn").replace("Rating", "Turn")
    for text in RATINGS_READ
    if "/10" not in text and "out of" not in text and "Score" not in text and "rate it" not in text
] + [
    "REASON\n\nThe first challenging turn is turn VALUE.",
    '{"reason": "REASON", "turn": "Turn VALUE"}',
    "Turn VALUE",
    "In turn 1 all is well. REASON\n\nTurn: [[VALUE]]",
    '{"reason": "Turn 1: fine. Turn 2: fine. REASON", "turn": VALUE}',
    "REASON\n\nTurn number: VALUE",
    '{"reason": "REASON", "turn": "VALUE, as the reply breaks off"}',
    "REASON\n\n**Turn: VALUE**",
    '{"turn": "VALUE"}',
    "REASON\n\nFinal answer: VALUE",
    "REASON\n\nFinal answer: turn VALUE",
]
TURNS_UNCLEAR = [
    text.replace("rating", "turn").replace("Rating", "Turn")
    for text in RATINGS_UNCLEAR
    if "/5" not in text and "/10" not in text and "between" not in text
] + [
    '{"reason": "REASON", "turn": -1}',
    '{"reason": "REASON", "turn": 9}',
    '{"reason": "REASON", "turn": "turns VALUE and OTHER"}',
    "Turn 1 and turn 2 are fine. REASON",
    '{"reason": "REASON", "turn": "the last one"}',
]
POLITE = '"polite": {"reason": "REASON", "verdict": "VERDICT"}'
CLEAR = '"clear": {"reason": "REASON", "verdict": "scored", "score": SCORE}'


def _sections(polite: str = POLITE, clear: str = CLEAR) -> str:
    return f"{{{polite}, {clear}}}"


def _polite(verdict: str) -> str:
    return f'"polite": {{"reason": "REASON", "verdict": {verdict}}}'


def _clear(score: str) -> str:
    return f'"clear": {{"reason": "REASON", "verdict": "scored", "score": {score}}}'


RUBRICS_READ = [
    _sections(),
    '{\n  "polite": {\n    "reason": "REASON",\n    "verdict": "VERDICT"\n  },\n  "clear": {\n    "reason": "REASON",\n    "verdict": "scored",\n    "score": SCORE\n  }\n}',
    f"```json\n{_sections()}\n```",
    f"Here is my assessment of the text:\n\n```json\n{_sections()}\n```\n\nLet me know if you need more detail.",
    f"Sure! {_sections()}",
    f"{_sections()}\n\nI hope this helps.",
    f"<think>It is rather clear, perhaps a 3.</think>\n{_sections()}",
    '<think>{"polite": {"verdict": "fail"}, "clear": {"verdict": "scored", "score": 1}}</think>' + _sections(),
    _sections(_polite('"UPPER"')),
    _sections(_polite('"TITLE."')),
    _sections(_polite('"**VERDICT**"')),
    _sections(_polite('"VERDICTed"')),
    _sections(_polite('"VERDICT: see the greeting"')),
    _sections(_polite('"VERDICT - see above"')),
    _sections(clear=_clear('"SCORE"')),
    _sections(clear=_clear('"SCORE/5"')),
    _sections(clear=_clear('"SCORE out of 5"')),
    _sections(clear=_clear('"**SCORE**"')),
    _sections(clear=_clear('"[[SCORE]]"')),
    _sections(clear=_clear("SCORE.0")),
    _sections(clear=_clear('"SCORE points"')),
    _sections(clear='"clear": {"reason": "REASON", "verdict": "Scored", "score": SCORE}'),
    _sections(clear='"clear": {"reason": "REASON", "score": SCORE, "verdict": "scored"}'),
    _sections(clear='"clear": {"reason": "REASON", "score": SCORE}'),
    _sections(clear='"clear": {"verdict": "scored", "score": SCORE}'),
    _sections('"polite": {"verdict": "VERDICT"}'),
    _sections('"polite": "VERDICT"', '"clear": SCORE'),
    _sections('"polite": "TITLE"', '"clear": "SCORE/5"'),
    "{" + CLEAR + ", " + POLITE + "}",
    '{"Polite": {"Reason": "REASON", "Verdict": "VERDICT"}, "Clear": {"Reason": "REASON", "Verdict": "scored", "Score": SCORE}}',
    '{"verdicts": ' + _sections() + "}",
    '{"criteria": ' + _sections() + "}",
    f"[{_sections()}]",
    "{" + POLITE + ", " + CLEAR + ', "summary": "REASON"}',
    _sections('"polite": {"reason": "REASON", "verdict": "VERDICT", "confidence": 0.9}'),
    _sections(clear='"clear": {"reason": "REASON", "evidence": "\'as agreed\'", "verdict": "scored", "score": SCORE}'),
    "{'polite': {'reason': 'REASON', 'verdict': 'VERDICT'}, 'clear': {'reason': 'REASON', 'verdict': 'scored', 'score': SCORE}}",
    '{"polite": {"reason": "REASON", "verdict": "VERDICT",}, "clear": {"reason": "REASON", "verdict": "scored", "score": SCORE,},}',
    '{polite: {reason: "REASON", verdict: "VERDICT"}, clear: {reason: "REASON", verdict: "scored", score: SCORE}}',
    _sections('"polite": {"reason": "It says "please" twice. REASON", "verdict": "VERDICT"}'),
    _sections('"polite": {"reason": "REASON\nREASON", "verdict": "VERDICT"}'),
    "{" + POLITE + "\n " + CLEAR + "}",
    f"{_sections()}\n\n{_sections()}",
    'The text quotes {"score": 5} of another judge.\n\n' + _sections(),
]  # fmt: skip
"""Both criteria have a value: ``polite`` passes or fails, ``clear`` has a score from 1 to 5."""
RUBRICS_WITHOUT_SCORE = [
    _sections(clear=_clear('"SCORE or NEXT"')),
    _sections(clear=_clear('"SCORE-5"')),
    _sections(clear=_clear("SCORE.5")),
    _sections(clear=_clear("7")),
    _sections(clear=_clear("0")),
    _sections(clear=_clear('"SCORE/10"')),
    _sections(clear=_clear('"about SCORE?"')),
    _sections(clear=_clear("null")),
    _sections(clear=_clear("true")),
    _sections(clear=_clear('"high"')),
    _sections(clear='"clear": {"reason": "REASON", "verdict": "unsure", "score": SCORE}'),
    _sections(clear='"clear": {"reason": "REASON", "verdict": "unsure", "score": null}'),
    _sections(clear='"clear": {"reason": "REASON", "verdict": "unsure"}'),
    _sections(clear='"clear": "unsure"'),
    _sections(clear='"clear": {"reason": "REASON", "verdict": "pass"}'),
    _sections(clear='"clear": {"reason": "REASON", "verdict": "scored"}'),
    _sections(
        clear='"clear": {"reason": "REASON", "verdict": "scored", "score": SCORE, "final_score": NEXT}'
    ),
    "{" + POLITE + "}",
]
RUBRICS_WITHOUT_VERDICT = [
    _sections(_polite('"pass or fail"')),
    _sections(_polite('"VERDICT", "fail", "pass"')),
    _sections('"polite": {"reason": "REASON", "verdict": "VERDICT", "final_verdict": "OPPOSITE"}'),
    _sections(_polite('"pass/fail"')),
    _sections(_polite('"not VERDICT"')),
    _sections(_polite('"VERDICT?"')),
    _sections(_polite('"unsure"')),
    _sections(_polite('"Unsure."')),
    _sections(_polite("true")),
    _sections(_polite('"yes"')),
    _sections(_polite("null")),
    _sections(_polite('"mostly VERDICT"')),
    _sections(_polite("4")),
    _sections('"polite": {"reason": "REASON"}'),
    _sections('"polite": 4'),
    "{" + CLEAR + "}",
]
RUBRICS_UNCLEAR = [
    _sections(clear=_clear("SCORE or NEXT")),
    _sections(clear=_clear("SCORE - 1")),
    _sections('"polite": {"reason": "REASON", "verdict": "pass", "verdict": "fail"}'),
    _sections(clear='"clear": {"reason": "REASON", "verdict": "scored", "score": SCORE, "score": 9}'),
    _sections(_polite('"unsure"'), '"clear": {"reason": "REASON", "verdict": "unsure", "score": 1}'),
    _sections() + '\n{"polite": {"verdict": "fail"}, "clear": {"verdict": "scored", "score": 9}}',
    "{" + POLITE + ', "clear": {"reason": "REASON", "verdict": "scored", "score": SCORE',
    "{" + POLITE + ', "clear": {"reason": "REASON", "verdict": "scored", "score": SCORE}',
    "<think>" + _sections(),
    "I cannot judge this text.",
    "REASON It is polite and rather clear.",
    '{"overall": "VERDICT"}',
    "{}",
    '{"polite": {"reason": "REASON", "verdict": "VERDICT" /* or not */}, ' + CLEAR + "}",
    "",
]
EVENTS = ("find the recipe", "buy the flour", "mix the dough", "bake the bread")
GRAPHS_READ = [
    "step0: A0; step1: A1; step2: A2; step0 -> step1; step1 -> step2",
    "step0: A0\nstep1: A1\nstep2: A2\nstep0 -> step1\nstep1 -> step2",
    "Step 0: A0\nStep 1: A1\nStep 2: A2\n\nStep 0 -> Step 1\nStep 1 -> Step 2",
    "**step0**: A0\n**step1**: A1\n**step2**: A2\n\nstep0 -> step1\nstep1 -> step2",
    "**step0:** A0\n**step1:** A1\n**step2:** A2\nstep0 -> step1 -> step2",
    "step0. A0\nstep1. A1\nstep2. A2\nstep0 -> step1\nstep1 -> step2",
    "step0) A0\nstep1) A1\nstep2) A2\nstep0 --> step1\nstep1 --> step2",
    "0. A0\n1. A1\n2. A2\n\n0 -> 1\n1 -> 2",
    "- step0: A0\n- step1: A1\n- step2: A2\n- step0 -> step1\n- step1 -> step2",
    "step0: A0; step1: A1; step2: A2; step0 -&gt; step1; step1 -&gt; step2",
    "step0: A0; step1: A1; step2: A2; step0 → step1; step1 → step2",
    "step0: A0; step1: A1; step2: A2; step0 => step1; step1 => step2;",
    "```\nstep0: A0\nstep1: A1\nstep2: A2\nstep0 -> step1\nstep1 -> step2\n```",
    "Here is the graph:\n\nstep0: A0;\nstep1: A1;\nstep2: A2;\nstep0 -> step1;\nstep1 -> step2;\n\nLet me know if it helps.",
    "<think>step2 -> step0?</think>\nstep0: A0; step1: A1; step2: A2; step0 -> step1; step1 -> step2",
    "Draft:\n```\nstep0: A0; step1: A1; step2 -> step0\n```\nCorrected:\n```\nstep0: A0; step1: A1; step2: A2; step0 -> step1; step1 -> step2\n```",
    'digraph { 0 [label="A0"]; 1 [label="A1"]; 2 [label="A2"]; 0 -> 1; 1 -> 2 }',
    '```dot\ndigraph G {\n  rankdir=LR;\n  0 [label="A0"];\n  1 [label="A1"];\n  2 [label="A2"];\n  0 -> 1 -> 2;\n}\n```',
    "flowchart TD\n    0[A0] --> 1[A1]\n    1 --> 2[A2]",
    'graph LR\n    0["A0"] -->|then| 1("A1")\n    1 --> 2{A2}',
    "```mermaid\ngraph TD;\n0[A0];\n1[A1];\n2[A2];\n0-->1;\n1-->2;\n```",
    '{"events": {"0": "A0", "1": "A1", "2": "A2"}, "edges": ["0->1", "1->2"]}',
    '{"events": [{"id": "0", "text": "A0"}, {"id": "1", "text": "A1"}, {"id": "2", "text": "A2"}], "edges": [{"source_id": "0", "target_id": "1"}, {"source_id": "1", "target_id": "2"}]}',
    '```json\n{"nodes": [{"id": 0, "label": "A0"}, {"id": 1, "label": "A1"}, {"id": 2, "label": "A2"}], "edges": [{"from": 0, "to": 1}, {"from": 1, "to": 2}]}\n```',
    '{"steps": {"step0": "A0", "step1": "A1", "step2": "A2"}, "edges": [["step0", "step1"], ["step1", "step2"]]}',
    '{"step0": "A0", "step1": "A1", "step2": "A2", "edges": [{"source": "step0", "target": "step1"}, {"before": 1, "after": 2}]}',
    "step0: A0\nstep1: A1\nstep2: A2\n\nA0 -> A1;\nA1 -> A2;",
]
GRAPHS_UNCLEAR = [
    "I cannot draw this graph.", "", "<think>step0 -> step1; step1 -> step2", "<think>\ndigraph { 0 -> 1 }", "1. A0\n2. A1\n3. A2",
    "First A0, then A1, then A2.", "Sure, I would go from A0 -> A1.", "{}", "[]", '["A0", "A1"]', '{"answer": "A0"}',
    "No graph is needed: A0 comes first.", "- A0\n- A1\n- A2", "flowchart of the process: A0", "```\n```", "The steps are independent.",
    "2.5 cups of flour: A0", "step by step, A0", "A0\nA1\nA2",
]  # fmt: skip
UTTERANCES = [
    "ls -la /home", "What is in the drawer?", "I move my knight to f3.", "Please sort the table by the second column.",
    "Ich nehme die linke Tür.", 'Say "hello" to the guard', "cat notes.txt | wc -l", "7", "And now the same for March, in {braces}.",
]  # fmt: skip
STRATEGY_NAMES = ["improvement", "next-step", "new-request", "other"]
USER_TURNS_READ = [
    '{"strategy": STRATEGY, "utterance": UTTERANCE}',
    '{\n  "strategy": STRATEGY,\n  "utterance": UTTERANCE\n}',
    '```json\n{"strategy": STRATEGY, "utterance": UTTERANCE}\n```',
    'Here is my next message:\n\n{"strategy": STRATEGY, "utterance": UTTERANCE}',
    '{"strategy": STRATEGY, "utterance": UTTERANCE}\n\nThis continues the dialogue.',
    "<think>The user might ask for more.</think>{\"strategy\": STRATEGY, \"utterance\": UTTERANCE}",
    '<think>{"strategy": "other", "utterance": "no"}</think>\n{"strategy": STRATEGY, "utterance": UTTERANCE}',
    '{"utterance": UTTERANCE, "strategy": STRATEGY}',
    '{"Strategy": STRATEGY, "Utterance": UTTERANCE}',
    '{"strategy": CAPITALS, "utterance": UTTERANCE}',
    '{"strategy": SPACED, "utterance": UTTERANCE}',
    '{"strategy": UNDERLINED, "utterance": UTTERANCE}',
    '{"strategy": STRATEGY, "utterance": UTTERANCE, "reason": "It tests the memory."}',
    '{"reason": "It tests the memory.", "strategy": STRATEGY, "utterance": UTTERANCE}',
    '{"strategy": STRATEGY, "utterance": UTTERANCE,}',
    '{strategy: STRATEGY, utterance: UTTERANCE}',
    '[{"strategy": STRATEGY, "utterance": UTTERANCE}]',
    '{"next_turn": {"strategy": STRATEGY, "utterance": UTTERANCE}}',
    '{"strategy": STRATEGY, "utterance": UTTERANCE}\n\n{"strategy": STRATEGY, "utterance": UTTERANCE}',
    'I thought about it.</think>{"strategy": STRATEGY, "utterance": UTTERANCE}',
    '{"strategy": STRATEGY\n "utterance": UTTERANCE}',
    '  {"strategy": STRATEGY, "utterance": UTTERANCE}  ',
]  # fmt: skip
USER_TURNS_UNCLEAR = [
    '{"strategy": STRATEGY, "utterance": ""}', '{"strategy": STRATEGY, "utterance": "  \\n"}', '{"strategy": STRATEGY}',
    '{"strategy": STRATEGY, "utterance": null}', '{"strategy": STRATEGY, "utterance": [UTTERANCE, "or this"]}',
    '{"strategy": "improvement or other", "utterance": UTTERANCE}', '{"strategy": "banter", "utterance": UTTERANCE}',
    '{"utterance": UTTERANCE}', '{"strategy": STRATEGY, "utterance": UTTERANCE', '{"strategy": STRATEGY, "utterance": "I would li',
    '<think>{"strategy": STRATEGY, "utterance": UTTERANCE}', "UTTERANCE", "I cannot play this role.", "", "{}",
    '{"strategy": STRATEGY, "utterance": UTTERANCE}\n{"strategy": STRATEGY, "utterance": "No, this one."}',
    '{"strategy": STRATEGY, "utterance": UTTERANCE, "utterance": "No, this one."}',
]  # fmt: skip
READERS_OF_TEXTS = [
    ("A nurse", "Knows hospitals and looks for what changes in the care."), ("Tax clerk", "Checks the amounts and the dates."),
    ("Ein Lehrer", "Will wissen, was er seinen Schülern erklären kann."), ("A commuter", "Wants to know which trains do not run."),
    ("Historian of law", "Compares the ruling with older ones; dislikes loose words."), ("Parent", "Asks what it means for the children."),
    ("村の医者", "新しい薬の費用を知りたい。"),
]  # fmt: skip
ROLES_READ = [
    '{"coarse": [ROLE0, ROLE1], "fine": [ROLE2]}',
    '{\n  "coarse": [\n    ROLE0,\n    ROLE1\n  ],\n  "fine": [\n    ROLE2\n  ]\n}',
    '```json\n{"coarse": [ROLE0, ROLE1], "fine": [ROLE2]}\n```',
    'These readers fit:\n\n{"coarse": [ROLE0, ROLE1], "fine": [ROLE2]}\n\nTell me if you need others.',
    '<think>{"coarse": [ROLE2], "fine": []}</think>{"coarse": [ROLE0, ROLE1], "fine": [ROLE2]}',
    '{"fine": [ROLE2], "coarse": [ROLE0, ROLE1]}',
    '{"Coarse": [ROLE0, ROLE1], "Fine": [ROLE2]}',
    '{"coarse": [ROLE0, ROLE1], "fine": [ROLE2],}',
    '{"coarse": [ROLE0, ROLE1,], "fine": [ROLE2]}',
    '{"roles": {"coarse": [ROLE0, ROLE1], "fine": [ROLE2]}}',
    '[{"coarse": [ROLE0, ROLE1], "fine": [ROLE2]}]',
    '{"coarse": [ROLE0, ROLE1], "fine": [ROLE2], "note": "all differ"}',
    '{"coarse": [ROLE0, ROLE0, ROLE1], "fine": [ROLE2]}',
    '{"coarse": [ROLE0, ROLE1, ROLE3], "fine": [ROLE2]}',
    '{"coarse": [ROLE0, ROLE1], "fine": [ROLE2, ROLE0]}',
    '{"coarse": [ROLE0, {"type": "", "description": "Nobody."}, ROLE1], "fine": [ROLE2]}',
    "{coarse: [ROLE0, ROLE1], fine: [ROLE2]}",
    '{"coarse": [ROLE0, ROLE1], "fine": [{"type": "TYPE2", "description": "DESCRIPTION2", "interest": "high"}]}',
    '{"coarse": [ROLE0, ROLE1], "fine": [{"description": "DESCRIPTION2", "type": "TYPE2"}]}',
    '{"coarse": [ROLE0, ROLE1], "fine": [{"Type": "TYPE2", "Description": "DESCRIPTION2"}]}',
    '{"coarse": [ROLE0, ROLE1]\n "fine": [ROLE2]}',
    '{"coarse": [ROLE0, ROLE1], "fine": [{"type": "TYPE2", "description": "  DESCRIPTION2  "}]}',
    '{"coarse": [ROLE0, ROLE1], "fine": ROLE2}',
]
"""The roles are two coarse ones and a fine one."""
ROLES_UNCLEAR = [
    '{"coarse": [], "fine": []}', "{}", "", "I cannot name readers of this text.", '{"coarse": [ROLE0, ROLE1], "fine": [ROLE2]',
    '{"coarse": [ROLE0, {"type": "TYPE1", "descr', '<think>{"coarse": [ROLE0, ROLE1], "fine": [ROLE2]}', "1. TYPE0\n2. TYPE1\n3. TYPE2",
    '{"coarse": [ROLE0, ROLE1], "fine": [ROLE2]}\n{"coarse": [ROLE1], "fine": [ROLE0]}', '{"coarse": null, "fine": null}',
    '{"coarse": [{"type": "", "description": ""}], "fine": []}', '{"readers": [ROLE0, ROLE1]}',
]  # fmt: skip
SCRIPTS_READ = [
    '{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}', '{"steps": ["A0", "A1", "A2"]}',
    '{\n  "considerations": "REASON",\n  "steps": [\n    "A0",\n    "A1",\n    "A2"\n  ]\n}',
    '```json\n{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}\n```', '{"considerations": "REASON", "steps": ["1. A0", "2. A1", "3. A2"]}',
    '{"considerations": "REASON", "steps": ["Step 1: A0", "Step 2: A1", "Step 3: A2"]}', '{"steps": ["A0", "A1", "A2"], "considerations": "REASON"}',
    '{"considerations": "REASON", "steps": ["A0", "", "A1", "A2"]}', '{"considerations": "REASON", "steps": [" A0 ", "A1", "A2"]}',
    '{"Considerations": "REASON", "Steps": ["A0", "A1", "A2"]}', '{"considerations": "REASON", "steps": ["A0", "A1", "A2",]}',
    '{"considerations": "REASON", "steps": ["A0", "A1", "A2"], "count": 3}', '{"script": {"considerations": "REASON", "steps": ["A0", "A1", "A2"]}}',
    '[{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}]', "{'considerations': 'REASON', 'steps': ['A0', 'A1', 'A2']}",
    '<think>{"steps": ["A2"]}</think>{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}',
    'Here is the script:\n{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}', '{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}\n\nGood luck!',
    '{"considerations": "It says "boil" twice. REASON", "steps": ["A0", "A1", "A2"]}', '{considerations: "REASON", steps: ["A0", "A1", "A2"]}',
    '{"considerations": "REASON\nREASON", "steps": ["A0", "A1", "A2"]}', '{"considerations": "REASON" "steps": ["A0", "A1", "A2"]}',
    '{"considerations": null, "steps": ["A0", "A1", "A2"]}', '{"considerations": "", "steps": ["A0", "A1", "A2"]}',
    '{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}\n{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}',
    '{"considerations": "REASON", "steps": ["- A0", "- A1", "- A2"]}', '{"considerations": ["REASON"], "steps": ["A0", "A1", "A2"]}',
]  # fmt: skip
SCRIPTS_UNCLEAR = [
    '{"considerations": "REASON", "steps": []}', '{"considerations": "REASON", "steps": ["", " "]}', '{"considerations": "REASON"}',
    '{"considerations": "REASON", "steps": null}', '{"considerations": "REASON", "steps": ["A0", "A1"', '{"considerations": "REASON", "steps": ["A0", "A',
    '<think>{"considerations": "REASON", "steps": ["A0", "A1", "A2"]}', "I cannot write this script.", "", '{"considerations": "REASON", "steps": ["A0", ["A1"]]}',
    '{"considerations": "REASON", "steps": ["A0", "A1"]}\n{"considerations": "REASON", "steps": ["A2"]}',
    '{"considerations": "REASON", "steps": ["A0"], "steps": ["A1"]}', "First A0, then A1.", '{"considerations": "REASON", "steps": "A0"}',
]  # fmt: skip
STEPS_READ = [
    "1. A0\n2. A1\n3. A2", "1) A0\n2) A1\n3) A2", "(1) A0\n(2) A1\n(3) A2", "1 - A0\n2 - A1\n3 - A2", "Step 1: A0\nStep 2: A1\nStep 3: A2",
    "**Step 1:** A0\n**Step 2:** A1\n**Step 3:** A2", "**1.** A0\n**2.** A1\n**3.** A2", "- A0\n- A1\n- A2", "* A0\n* A1\n* A2",
    "• A0\n• A1\n• A2", "Here are the steps:\n\n1. A0\n2. A1\n3. A2", "1. A0\n\n2. A1\n\n3. A2", "1. A0 2. A1 3. A2", "0. A0\n1. A1\n2. A2",
    "### Step 1: A0\n### Step 2: A1\n### Step 3: A2", "1. A0\n2. A1\n3. A2\n\nEnjoy your bread!", "1. A0\n2. A1\n3. A2\n\nNote: this takes an hour.",
    "Sure!\n\nStep 1. A0\nStep 2. A1\nStep 3. A2", "<think>1. A2\n2. A0</think>\n1. A0\n2. A1\n3. A2", "Ⅰ\n1. A0\n2. A1\n3. A2", "1、A0\n2、A1\n3、A2",
    "① A0\n② A1\n③ A2", "第1步：A0\n第2步：A1\n第3步：A2", "A0\nA1\nA2", "To bake bread:\nA0\nA1\nA2", "1: A0\n2: A1\n3: A2", "[1] A0\n[2] A1\n[3] A2",
    "> 1. A0\n> 2. A1\n> 3. A2", "  1. A0\n  2. A1\n  3. A2", "1. A0\r\n2. A1\r\n3. A2", "- [ ] A0\n- [ ] A1\n- [x] A2", "1.A0\n2.A1\n3.A2",
]  # fmt: skip
STEPS_UNCLEAR = [
    "", "   \n ", "I cannot help with that.", "The recipe needs 2.5 cups of flour. It takes an hour.", "<think>1. A0\n2. A1\n3. A2",
    "In 2019. Then in 2020. It was fine.", "A0, then A1, and in the end A2.", "The price is $1. That is cheap.", "A0.", "Meet at 10. Then go home.",
    "There are many ways to do this. One of them begins with the flour. Another begins with water.",
    "it begins here\nand goes on in\nlower case lines",
]  # fmt: skip


def _named(template: str, index: int, *, capital: bool) -> tuple[str, list[str]]:
    """A template with three events, which differ by the index."""
    events = [EVENTS[(index + place) % len(EVENTS)] for place in range(3)]
    events = [f"{event} {'again ' * (index // len(EVENTS))}".strip() for event in events]
    shown = [event.capitalize() if capital else event for event in events]
    for place, event in enumerate(shown):
        template = template.replace(f"A{place}", event)
    return template, shown


def graphs() -> Iterator[Row]:
    for template in GRAPHS_READ:
        for index in range(12):
            text, events = _named(template, index, capital=False)
            yield {
                "text": text,
                "read": [[["0", "1"], ["1", "2"]], {str(n): event for n, event in enumerate(events)}],
            }
    for template in GRAPHS_UNCLEAR:
        for index in range(3):
            yield {"text": _named(template, index, capital=False)[0], "read": None}


def steps() -> Iterator[Row]:
    for template in STEPS_READ:
        for index in range(10):
            text, events = _named(template, index, capital=True)
            yield {"text": text, "read": events}
    for template in STEPS_UNCLEAR:
        for index in range(5):
            yield {"text": _named(template, index, capital=True)[0], "read": None}


def user_turns() -> Iterator[Row]:
    for templates, is_read in ((USER_TURNS_READ, True), (USER_TURNS_UNCLEAR, False)):
        for number, template in enumerate(templates):
            for index in range(15 if is_read else 4):
                strategy = STRATEGY_NAMES[(number + index) % len(STRATEGY_NAMES)]
                said = UTTERANCES[(number + index * 2) % len(UTTERANCES)]
                forms = {
                    "STRATEGY": strategy,
                    "CAPITALS": strategy.title(),
                    "SPACED": strategy.replace("-", " "),
                }
                forms |= {"UNDERLINED": strategy.replace("-", "_"), "UTTERANCE": said}
                text = template
                for name, value in forms.items():
                    text = text.replace(name, json.dumps(value, ensure_ascii=False))
                yield {"text": text, "read": [strategy, said] if is_read else None}


def reader_roles() -> Iterator[Row]:
    for templates, is_read in ((ROLES_READ, True), (ROLES_UNCLEAR, False)):
        for template in templates:
            for index in range(14 if is_read else 4):
                step = 1 + index // len(READERS_OF_TEXTS)
                chosen = [READERS_OF_TEXTS[(index + step * n) % len(READERS_OF_TEXTS)] for n in range(4)]
                text = template
                for number, (title, description) in enumerate(chosen):
                    role = json.dumps({"type": title, "description": description}, ensure_ascii=False)
                    text = text.replace(f"ROLE{number}", role)
                    text = text.replace(f"TYPE{number}", title).replace(f"DESCRIPTION{number}", description)
                kinds = zip(("coarse", "coarse", "fine"), chosen, strict=False)
                yield {"text": text, "read": [[kind, *role] for kind, role in kinds] if is_read else None}


def written_scripts() -> Iterator[Row]:
    for templates, is_read in ((SCRIPTS_READ, True), (SCRIPTS_UNCLEAR, False)):
        for number, template in enumerate(templates):
            for index in range(12 if is_read else 4):
                text, events = _named(fill(template, number + index), index, capital=True)
                yield {"text": text, "read": events if is_read else None}


def rubrics() -> Iterator[Row]:
    values = [("pass", 4), ("fail", 2), ("pass", 5), ("fail", 1), ("pass", 3)]
    words = {
        "VERDICT": lambda value: value[0],
        "UPPER": lambda value: value[0].upper(),
        "TITLE": lambda value: value[0].capitalize(),
        "SCORE": lambda value: value[1],
        "OPPOSITE": lambda value: "fail" if value[0] == "pass" else "pass",
        "NEXT": lambda value: value[1] % 5 + 1,
    }
    yield from rows(RUBRICS_READ, RUBRICS_UNCLEAR, values, lambda value: _rubric(*value), **words)
    yield from rows(RUBRICS_WITHOUT_SCORE, (), values, lambda value: _rubric(value[0], None), **words)
    yield from rows(RUBRICS_WITHOUT_VERDICT, (), values, lambda value: _rubric(None, value[1]), **words)


def _rubric(polite: str | None, clear: int | None) -> Row:
    return {"polite": polite, "clear": clear}


def _fail_without_findings(row: Row) -> Row:
    """Templates that fix their verdict are labelled with it."""
    for verdict in ("pass", "fail"):
        fixed = '"problem"' in row["text"] and f'"verdict": "{verdict}"' in row["text"].lower()
        if row["read"] is not None and fixed:
            return {**row, "read": verdict}
    return row


@cache
def corpus() -> dict[str, list[Row]]:
    from tests.answers.parsers import OPTION_1, OPTION_2

    words = {"1": OPTION_1, "2": OPTION_2}
    upper = {"UPPER": str.upper, "TITLE": str.capitalize}
    kinds: dict[str, Iterator[Row]] = {
        "rating": rows(RATINGS_READ, RATINGS_UNCLEAR, range(2, 10)),
        "challenge_turn": rows(TURNS_READ, TURNS_UNCLEAR, range(1, 6)),
        "criterion_verdict": map(
            _fail_without_findings, rows(VERDICTS_READ, VERDICTS_UNCLEAR, ["pass", "fail"], **upper)
        ),
        "pair_vote": iter(
            [
                *rows(VOTES_READ, VOTES_UNCLEAR, ["1", "2", "tie"], TITLE=lambda vote: vote.capitalize()),
                *rows(NUMBER_VOTES_READ, (), ["1", "2"]),
            ]
        ),
        "decision_choice": iter(
            [
                *rows(DECISIONS_READ, DECISIONS_UNCLEAR, ["1", "2"], int, WORDS=words.__getitem__),
                *rows(
                    [lead + reason for lead in CHOICE_LEADS for reason in CHOICE_REASONS], (), ["1", "2"], int
                ),
                *rows(
                    (),
                    [f"{reason} {doubt}" for doubt in CHOICE_DOUBTS for reason in CHOICE_REASONS],
                    ["1", "2"],
                ),
                *rows(EITHER_READ, (), ["1", "2"], lambda _: 3),
            ]
        ),
        "yes_no": rows(
            [*YES_NO_READ, *(lead + reason for lead in ORDER_LEADS for reason in ORDER_REASONS)],
            YES_NO_UNCLEAR,
            ["Yes", "No", "yes", "no"],
            lambda word: word.lower() == "yes",
            UPPERWORD=str.upper,
            WORD=str,
        ),
        "rubric": rubrics(),
        "user_turn": user_turns(),
        "roles": reader_roles(),
        "written_script": written_scripts(),
        "graph": graphs(),
        "script_steps": steps(),
    }
    return {kind: [*map(partial(_marked, kind), _distinct(found))] for kind, found in kinds.items()}


def _marked(kind: str, row: Row) -> Row:
    pattern = ASKED_AGAIN.get(kind, r"(?!)")
    is_asked_again = row["read"] is not None and re.search(pattern, row["text"]) is not None
    return {**row, "asked_again": True} if is_asked_again else row


def _distinct(found: Iterator[Row]) -> list[Row]:
    return [*{row["text"]: row for row in found}.values()]
