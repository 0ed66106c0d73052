"""Judges with one model: of scripts, pairs, ratings and dialogues."""
