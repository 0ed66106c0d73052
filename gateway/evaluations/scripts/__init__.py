"""Evaluations of scripts (ABSEval)."""
