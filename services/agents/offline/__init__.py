"""Common parts of the agents without a language model: consensus of a pool and embedding similarity.

They abstain from criteria that these methods cannot decide. ``bench/offline_screen.py`` measures their
accuracy.
"""
