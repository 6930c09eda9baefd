"""Results turned into a capacity plan: how much one replica takes, how many are needed, at what price, for how long."""
