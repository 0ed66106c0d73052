"""Pairs of texts by role-players (DRPE): who reads them, what they say, and what simpler judges say."""
