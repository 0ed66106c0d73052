"""Writes a reference script by learning from all candidates of a task (ABSEval, section 3.2)."""
