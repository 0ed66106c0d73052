"""How far annotators agree: kappas, Krippendorff's alpha, Gwet's AC1, majority labels."""
