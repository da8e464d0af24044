"""The loop over rounds, and what each round is made of."""
