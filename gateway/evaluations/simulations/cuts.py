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
    """Cuts a script for each turn that models under test answer.

    Args:
        task: The simulated task.
        dialogue_index: The index of the dialogue among those of the task.
        turns: Whole turns, one or more: utterances alternate and end with the simulator's.
        challenging_turn: The first challenging turn, from 1. 0: none.

    Returns:
        The challenging turn (FirstChan) and every later one (SubseqChan); without a challenging turn, the
        last turn (LastOnly). A script ends with the user's utterance of its turn. Its id consists of the
        task, the dialogue and the turn, so ids of several dialogues differ.
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
