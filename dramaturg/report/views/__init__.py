"""Views of samples: one view model for all evaluations, and one builder for each kind."""
