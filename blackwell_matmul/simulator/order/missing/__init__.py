"""The edge that would have ordered two accesses: one kind of missing edge a file, asked in turn by `search`."""
