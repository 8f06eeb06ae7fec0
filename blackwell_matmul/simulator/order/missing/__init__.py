"""The missing edge that would have ordered two accesses: a file for each kind of edge; `search` tries the kinds in
order."""
