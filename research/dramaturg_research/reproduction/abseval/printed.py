"""The numbers that ABSEval prints."""

NAMES = {
    "NM": "No Missing Steps",
    "NR": "No Redundant Steps",
    "ND": "No Duplicate Steps",
    "EX": "Executable",
    "SC": "Satisfy Constraint",
    "CG": "Complete Goal",
    "OC": "Order Correct",
}
"""The names of the criteria (Table 5, caption)."""
TABLE_2 = (
    ("Qwen-110-Chat", "ABSEval", "0.087"),
    ("GPT-4-turbo", "ABSEval", "0.174"),
    ("GPT-3.5-turbo", "ABSEval", "0.329"),
    ("Qwen-110-Chat", "Single-LLM", "0.257"),
    ("GPT-4-turbo", "Single-LLM", "0.29"),
    ("GPT-3.5-turbo", "Single-LLM", "0.361"),
)
"""Table 2: model, mechanism, mean squared error."""
TABLE_3 = (("Answer Synthesize", "0.895", "0.965", "1.0"), ("Qwen-110B-Chat", "0.75", "0.855", "1.0"))
"""Table 3: source of the gold answer, accuracies of NM, NR and ND."""
TABLE_4 = (
    ("Missing steps", "0.84"),
    ("Redundant steps", "0.96"),
    ("Duplicate steps", "0.96"),
    ("Satisfy Constraint", "0.85"),
    ("Complete", "0.92"),
    ("Step order", "0.84"),
)
"""Table 4: category of perturbation, accuracy."""
TABLE_5 = {
    "Baichuan-Chat 13B": "14 13B 0.029 0.787 0.994 0.833 0.673 0.572 0.632",
    "Baichuan2-Chat 13B": "13 13B 0.139 0.777 0.992 0.813 0.677 0.580 0.604",
    "Vicuna-v1.5 7B": "10 7B 0.044 0.811 0.995 0.876 0.713 0.611 0.696",
    "Vicuna-v1.5 13B": "9 13B 0.074 0.858 0.999 0.888 0.708 0.624 0.720",
    "LLaMa2-chat 7B": "11 7B 0.250 0.728 0.999 0.836 0.661 0.566 0.709",
    "LLaMa2-chat 13B": "7 13B 0.211 0.807 0.999 0.871 0.715 0.622 0.722",
    "LLaMa2-chat 70B": "2 70B 0.379 0.773 0.999 0.886 0.711 0.665 0.727",
    "LLaMa3-instruct 8B": "5 8B 0.103 0.880 1.000 0.889 0.758 0.681 0.725",
    "LLaMa3-instruct 70B": "1 70B 0.154 0.894 1.000 0.902 0.755 0.711 0.745",
    "Mistral-Instruct-v0.1 7B": "15 7B 0.048 0.703 0.998 0.816 0.671 0.565 0.610",
    "Mistral-Instruct-v0.2 7B": "6 7B 0.220 0.810 1.000 0.889 0.713 0.666 0.718",
    "Mistral-8x7B-Instruct-v0.1 8x7B": "4 8x7B 0.092 0.888 0.999 0.902 0.753 0.685 0.766",
    "Qwen-Chat 7B": "12 7B 0.089 0.831 0.996 0.862 0.678 0.564 0.668",
    "Qwen-Chat 14B": "8 14B 0.139 0.878 0.997 0.879 0.719 0.593 0.703",
    "Qwen-Chat 72B": "3 72B 0.129 0.913 0.998 0.900 0.763 0.654 0.763",
}
"""Table 5: rank, size and the rates of the seven criteria, by model."""
ALL = "0.137 0.824 0.998 0.870 0.712 0.624 0.700"
"""Table 5: the rates of all models."""
