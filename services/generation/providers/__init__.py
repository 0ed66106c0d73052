"""Sources of completions: endpoints and recordings."""
