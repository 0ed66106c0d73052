"""Labels of people for the judgements of runs."""
