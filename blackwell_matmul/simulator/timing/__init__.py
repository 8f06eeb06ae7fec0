"""How long it takes: the same program, its operations and barriers, with service times on what they share."""
