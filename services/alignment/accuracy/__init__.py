"""Accuracy of predicted labels by group, with explicit abstention policies."""
