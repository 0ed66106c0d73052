"""Correlation of scores with human scores, and tests of differences between correlations."""
