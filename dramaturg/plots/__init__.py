"""Tables and figures as files for papers and slides: Markdown, CSV, LaTeX, SVG, PNG and PDF."""
