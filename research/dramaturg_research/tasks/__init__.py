"""Tasks that models write and people review: simulations, and tasks for scripts."""
