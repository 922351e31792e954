"""N* and kappa: the search for the smallest training set, and what lengths save each other."""
