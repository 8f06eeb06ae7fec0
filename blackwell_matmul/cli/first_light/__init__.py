"""`first-light`: tests on this machine's GPU what this package claims about it; writes one page and one JSON file.

`cases` lists the items, the most important first. `kit` compiles all items beforehand, on any machine. `item_tasks`
executes one item in a new process, on the GPU or in the emulator (`cards`). `running_items` runs all items and keeps a
row for each. `run_report` writes the JSON and the page, and `comparing` compares two reports.
"""
