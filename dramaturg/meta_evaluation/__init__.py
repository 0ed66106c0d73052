"""What measures a judge: faults that rules plant in scripts, a labelled set of requests, and rates on it.

The set has scripts, pairs of texts, dialogues and their labels: planted faults, flawless material, material
with instructions to the judge, and other languages than English. Faults of scripts are those of the rules
(``rules``), with fixed seeds. ``dramaturg.conformance`` measures a service on the set.
"""
