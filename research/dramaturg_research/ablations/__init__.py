"""The same scripts judged in several variants (ABSEval, Tables 2 and 3, Figures 4 and 7)."""
