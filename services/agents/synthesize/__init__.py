"""Writes a reference script from all candidates of a task (ABSEval, section 3.2)."""
