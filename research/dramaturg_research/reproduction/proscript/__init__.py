"""proScript (Sakaguchi et al. 2021, arXiv 2104.08251): Tables 1 to 4 and Figures 3, 5, 7 and 8."""

from dramaturg_research.reproduction.proscript.runs import ROLES, reproduce

__all__ = ["ROLES", "reproduce"]
