"""One judge for all criteria of a script (ABSEval, section 4.2 and Table 2, Single-LLM)."""
