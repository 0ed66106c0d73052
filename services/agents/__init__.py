"""The agents of ABSEval (section 3.2), each a service of its own."""
