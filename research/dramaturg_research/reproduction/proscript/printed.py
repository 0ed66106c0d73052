"""The numbers that proScript prints."""

TABLE_1 = {
    "random": "21.30 21.08 21.72 21.03 21.00 21.26 20.57 20.52 20.84 21.32 21.27 21.58",
    "Pairwise (RoB)": "65.75 67.05 64.71 61.29 62.85 60.06 63.25 64.97 61.89 59.06 60.44 57.98",
    "Pairwise (T5)": "70.96 71.93 69.76 67.64 69.44 66.18 69.50 71.41 67.96 65.51 67.20 64.16",
    "proScr(11B-100)": "56.05 56.58 55.75 52.26 52.91 51.89 54.98 55.67 54.59 49.16 49.76 48.83",
    "proScr(11B-1k)": "65.98 66.49 65.71 60.55 61.24 60.15 64.64 65.40 64.20 55.89 56.51 55.54",
    "proScr(L-all)": "66.25 66.89 65.83 63.64 64.22 63.27 65.76 66.38 65.35 61.23 61.76 60.91",
    "proScr(11B-all)": "78.20 78.48 78.14 75.71 75.93 75.72 77.75 78.03 77.71 73.37 73.54 73.46",
    "Human": "89.32 89.60 89.21 89.28 89.91 88.86 90.04 90.54 89.74 88.71 89.44 88.18",
}
"""Table 1: F1, P and R of each split, by model."""
TABLE_2 = {
    "dev": {
        "proScript_gen": "4.73 0.426 0.192 0.581 1.558 1.308 0.671",
        "proScript_gen-transfer": "4.79 0.337 0.195 0.679 1.491 1.281 0.775",
        "proScript_gen-pipe": "4.88 0.397 0.159 0.560 1.705 1.407 0.661",
        "Human": "2.78 0.155 0.161 0.144 1.123 1.011 0.199",
    },
    "test": {
        "proScript_gen": "4.97 0.581 0.142 0.656 1.668 1.184 0.709",
        "proScript_gen-transfer": "5.38 0.438 0.213 0.775 1.713 1.402 0.835",
        "proScript_gen-pipe": "5.41 0.594 0.143 0.671 1.880 1.292 0.787",
        "Human": "2.98 0.168 0.149 0.130 1.276 1.074 0.189",
    },
    "test (in domain)": {
        "proScript_gen": "4.57 0.513 0.158 0.633 1.471 1.108 0.687",
        "proScript_gen-transfer": "5.03 0.339 0.299 0.649 1.575 1.496 0.677",
        "proScript_gen-pipe": "5.10 0.561 0.147 0.630 1.765 1.217 0.744",
        "Human": "3.03 0.168 0.211 0.154 1.223 1.091 0.206",
    },
    "test (out domain)": {
        "proScript_gen": "5.43 0.659 0.124 0.681 1.894 1.270 0.735",
        "proScript_gen-transfer": "5.76 0.549 0.115 0.916 1.867 1.296 1.013",
        "proScript_gen-pipe": "5.81 0.659 0.116 0.795 1.961 1.267 0.941",
        "Human": "2.91 0.170 0.074 0.102 1.340 1.054 0.170",
    },
}
"""Table 2 by split and model, as printed."""
RANDOM_DISTANCES = ("11.06", "10.95")
"""Table 2, caption: the edit distance of random edges, on dev and on test."""
TABLE_4_MODELS = ("proScript", "Transfer", "Pipeline", "Human")
"""The columns of Table 4."""
TABLE_4 = {
    "incorrect order": ("crucial errors", "(edge) incorrect order", "15.79 21.62 24.32 10.00"),
    "missing event": ("crucial errors", "(node) missing event", "5.26 2.70 2.70 0.00"),
    "irrelevant or redundant event": (
        "crucial errors",
        "(node) irrelevant/redundant event",
        "10.53 13.51 2.70 0.00",
    ),
    "order ambiguity by context": (
        "minor revisions",
        "(edge) order ambiguity by context",
        "31.58 32.43 40.54 33.33",
    ),
    "granularity of events": ("minor revisions", "(node) granularity of events", "31.58 24.32 21.62 26.67"),
    "paraphrased event": ("minor revisions", "(node) paraphrased event", "0.00 0.00 5.41 6.67"),
    "wrong revision": ("", "wrong revisions", "5.26 5.41 2.70 23.33"),
}
"""Table 4, in percent: the group, the name and the shares of each type of revision."""
FIGURE_7 = {
    "Pipeline-dev": "20.3 56.6 23.1",
    "Transfer-dev": "30.6 45.6 23.8",
    "Human-dev": "55.3 22.7 22.0",
    "Pipeline-test": "25.2 56.6 18.2",
    "Transfer-test": "28.7 44.4 26.9",
    "Human-test": "54.0 32.7 13.3",
}
"""Figure 7, in percent: better than proScript_gen, equal, worse."""
DEGREES = {
    "dev": "1085 – – – – –",
    "train": "3252 – 2198 915 108 31",
    "test (in domain)": "1106 – – – – –",
    "test (out domain)": "971 – – – – –",
    "all": "6414 5.45 – – – –",
}
"""Section 4: scripts, mean number of events, and scripts by maximum degree 1, 2, 3, and 4 and above."""
