"""ABSEval (Liang et al. 2024): Tables 2, 4 and 5 and Figures 2, 5, 6 and 9 to 12.

MCScript, the data of the paper, was not released. The tasks are those of CoScript (Yuan et al. 2023), which
are of the same kind: an abstract goal with a constraint, in a topic.
"""

from dramaturg_research.reproduction.abseval.runs import ROLES, reproduce

__all__ = ["ROLES", "reproduce"]
