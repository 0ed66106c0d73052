"""What the agents without a language model share: consensus of a pool, and similarity of sentence embeddings.

They judge what such means can judge and abstain from the rest. ``bench/offline_screen.py`` measures how often
they are right.
"""
