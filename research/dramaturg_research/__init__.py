"""Research with dramaturg: reproduction of papers, studies of judges, and training of the edge model."""
