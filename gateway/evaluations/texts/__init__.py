"""Evaluations of texts by rubrics."""
