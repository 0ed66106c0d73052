"""Inter-annotator agreement: kappas, Krippendorff's alpha, Gwet's AC1, majority labels."""
