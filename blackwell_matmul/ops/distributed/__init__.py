"""Products of operands that are distributed over processes: sharding rules, and communication while products run."""
