"""Tables and figures of papers, from released data to files.

Each paper has a module here (``paper.PaperName``). It states the runs that it needs and lays out the figures
of their summaries as the paper does.
"""
