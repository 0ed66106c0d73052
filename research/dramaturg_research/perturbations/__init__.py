"""Scripts with one known fault, to measure detection by judges (ABSEval, section 4.2 and Table 4)."""
