"""Comparisons of two texts by role-players (DRPE), with baselines."""
