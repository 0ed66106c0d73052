"""Scripts with one known fault, to see whether judges find it (ABSEval, section 4.2 and Table 4)."""
