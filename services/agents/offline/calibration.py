"""Thresholds and their measured error rates.

All rates were measured on the 3,000 scripts of CoScript's test part (Yuan et al. 2023), written by a
language model and corrected by people; ``bench/offline_screen.py`` fits and measures them again. The
rates differ on other kinds of scripts.
"""

from __future__ import annotations

from services.agents.offline.constraints import LogisticModel

DUPLICATE_SIMILARITY = 0.95
"""The minimum cosine of duplicate steps, which must also have the same content words. Without that condition
1 % of scripts are flagged for steps with different actions ("draw the head", "draw the body"); with it 1 in
3,000. Repeated wordings occur in 1.3 %."""
POSSIBLE_DUPLICATE_SIMILARITY = 0.85
"""The minimum cosine of possible duplicates. 18 % of scripts have such a pair, and the judge abstains.
Paraphrases in very different words have lower cosines and are not detected."""

OFF_TOPIC_SIMILARITY = 0.30
"""The minimum cosine of script and goal; below it a script is off topic. Flags 0.9 % of scripts under their
own goal, 90 % under another goal of the same category, 99.5 % under a goal of another category."""
OFF_TOPIC_DISTANCE_FROM_POOL = 0.15
"""The additional condition with a pool: the minimum distance below the pool's median cosine with the goal, as
the wording of a goal may be unlike every script. Flags 0.9 % under their own goal, 91 % under another goal of
the same category."""
OFF_TOPIC_MIN_POOL = 5
"""The minimum number of usable candidates for a median."""

REDUNDANT_MIN_POOL = 8
"""The minimum number of usable candidates for a verdict on redundant steps."""
REDUNDANT_PERCENTILE = 95.0
"""The share of the pool's own scripts, each judged by the rest, with a better supported weakest step."""
REDUNDANT_MARGIN = 0.15
"""The minimum difference of support, in cosine. With pools of four to seven (below the required size) it
flags 3 % of unchanged scripts and 36 % of scripts with an added step of another script."""

ORDER_MIN_POOL = 10
"""The minimum number of usable candidates for a verdict on the order."""
ORDER_MIN_STEPS = 4
"""The minimum number of steps: with three steps, one swapped pair is common and nearly the worst order."""
ORDER_PERCENTILE = 90.0
"""The share of the pool's own scripts, each judged by the rest, that are nearer to the usual order."""
ORDER_MAX_CONSISTENCY = -0.25
"""The highest Kendall's tau with the usual order that is wrong: more pairs against it than for it. With pools
of four to seven (below the required size) it flags 5 % of unchanged scripts, 23 % of shuffled and 75 % of
reversed ones. Swapped neighbours are not detected."""

MISSING_MIN_POOL = 5
"""The minimum number of usable candidates for a consensus on the steps of a script."""
CONSENSUS_SIMILARITY = 0.7
"""The minimum cosine at which a script contains a step."""
CONSENSUS_SHARE = 0.5
"""The share of the pool that has a step of the consensus."""

CONSTRAINT = LogisticModel(intercept=-2.807, nearest_step=1.386, whole_script=1.624, keywords=3.477)
"""The model, fitted on the goals of odd number: a script's own constraint against those of other scripts for
the same abstract goal, equally frequent. Constraints of absence or quantity are excluded."""
CONSTRAINT_CONFIDENCE = 0.9
"""The minimum probability of an answer. On the goals of even number 32 % are answered, 91.5 % of them
correctly. Constraints of absence or quantity would be answered with 73 % accuracy, so the judge abstains from
them."""
