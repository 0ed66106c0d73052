"""The graph edit distance of script graphs, exact in bounded time (proScript, equation 3 and Table 2)."""
