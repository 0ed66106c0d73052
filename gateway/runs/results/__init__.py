"""What comes of a run: its judgements flat, its leaderboard, its exports."""
