"""Cuts test scripts from a dialogue (SimulBench, section 2.4; the kinds: section 4.2.2)."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueScript

_LONGEST_NAME = 180


def cut_scripts(
    task: SimulationTask, dialogue_index: int, turns: Sequence[Utterance], challenging_turn: int
) -> Sequence[DialogueScript]:
    """Cuts a script for each turn that models under test are to answer.

    Args:
        task: What is simulated.
        dialogue_index: Which of the task's dialogues it is.
        turns: Whole turns, one or more: utterances alternate and end with the simulator's.
        challenging_turn: The first challenging turn, from 1; 0: there is none.

    Returns:
        The challenging turn (FirstChan) and every later one (SubseqChan); where there is none, the last turn
        (LastOnly). A script ends with its turn's request. Its id is made of the task, the dialogue and the
        turn, so scripts of several dialogues do not meet.
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
