"""Files that hold what is evaluated: tables of texts, recordings of conversations, rubrics."""
