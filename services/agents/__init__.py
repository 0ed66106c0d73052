"""The agents of ABSEval (section 3.2), one service each."""
