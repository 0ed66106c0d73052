"""A labelled set of judge requests, and the rates of a judge's prompts and model on it.

The set has scripts, pairs of texts, dialogues and their labels: planted faults, flawless material, material
with instructions to the judge, and other languages than English. Faults of scripts are those of the rules of
``dramaturg.perturbations``, with fixed seeds.
"""
