"""The thresholds, and how often they are right.

All rates were measured on the 3,000 scripts of CoScript's test part (Yuan et al. 2023), written by a
language model and corrected by people; ``bench/offline_screen.py`` fits and measures them again. They are of
that data: on scripts of another kind they differ.
"""

from __future__ import annotations

from services.agents.offline.constraints import LogisticModel

DUPLICATE_SIMILARITY = 0.95
"""Steps this near say the same if they also have the same words of content. Without that condition 1 % of
scripts would be flagged for steps that differ in what is done ("draw the head", "draw the body"); with it
1 in 3,000. Repeated wordings are in 1.3 %."""
POSSIBLE_DUPLICATE_SIMILARITY = 0.85
"""Steps this near may say the same. In 18 % of scripts two are, so that the judge abstains. Paraphrases in
quite other words are further apart and go unseen."""

OFF_TOPIC_SIMILARITY = 0.30
"""A script that is less like its goal is off topic. Flags 0.9 % of scripts under their own goal, 90 % under
another goal of the same category, 99.5 % under a goal of another category."""
OFF_TOPIC_DISTANCE_FROM_POOL = 0.15
"""By how much less like the goal than the pool's median a script must be besides, where there is a pool: a
goal may be worded so that no script is like it. Flags 0.9 % under their own goal, 91 % under another goal of
the same category."""
OFF_TOPIC_MIN_POOL = 5
"""The fewest usable candidates that make a median."""

REDUNDANT_MIN_POOL = 8
"""The fewest usable candidates for a verdict on redundant steps."""
REDUNDANT_PERCENTILE = 95.0
"""The share of the pool's own scripts, each judged by the rest, with a better supported weakest step."""
REDUNDANT_MARGIN = 0.15
"""By how much less backed, in cosine, a step must be besides. With pools of four to seven, smaller than is
required, flags 3 % of scripts as they are and 36 % with a step of another script added."""

ORDER_MIN_POOL = 10
"""The fewest usable candidates for a verdict on the order."""
ORDER_MIN_STEPS = 4
"""The fewest steps: of three, two in the wrong order are as bad as it gets, and common."""
ORDER_PERCENTILE = 90.0
"""The share of the pool's own scripts, each judged by the rest, that are nearer to the usual order."""
ORDER_MAX_CONSISTENCY = -0.25
"""The highest Kendall's tau with the usual order that is wrong: more pairs against it than for it. With pools
of four to seven, smaller than is required, flags 5 % of scripts as they are, 23 % shuffled, 75 % reversed.
Neighbours that are swapped go unseen."""

MISSING_MIN_POOL = 5
"""The fewest usable candidates that make a consensus on what a script should have."""
CONSENSUS_SIMILARITY = 0.7
"""A script has a step if one of its own is this near to it."""
CONSENSUS_SHARE = 0.5
"""The share of the pool that has a step of the consensus."""

CONSTRAINT = LogisticModel(intercept=-2.807, nearest_step=1.386, whole_script=1.624, keywords=3.477)
"""Fitted on the goals of odd number: a script's own constraint against those of other scripts for the same
abstract goal, equally frequent. Constraints of absence or quantity are left out."""
CONSTRAINT_CONFIDENCE = 0.9
"""The least probability for an answer. On the goals of even number 32 % are answered, 91.5 % of them rightly.
Of constraints of absence or quantity 73 % would be answered rightly, so they are not answered."""
