"""Products of operands that are spread over processes: sharding rules, and transfers while products run."""
