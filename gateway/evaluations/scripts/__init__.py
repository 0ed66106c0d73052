"""Scripts for a task (ABSEval)."""
