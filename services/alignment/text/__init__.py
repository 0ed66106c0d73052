"""Scores of texts against references: overlap, similarity, length."""
