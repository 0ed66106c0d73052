"""Judges texts by the criteria of the request: a rubric."""
