"""Results of evaluations: files, flat judgements, sums and leaderboards."""
