"""`first-light`: tests every claim about a GPU on this machine's GPU, and writes one page and one JSON file.

`cases` lists the items, most valuable first. `kit` compiles it beforehand, on any machine. `item_tasks` executes one
item in its own process, on the GPU or in the emulator (`cards`). `running_items` runs all items and keeps a row for
each. `run_report` writes the JSON and the page, and `comparing` compares two of them.
"""
