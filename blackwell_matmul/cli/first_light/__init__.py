"""`first-light`: whether all that is claimed for a GPU holds on the GPU that is here, as one page and one JSON file.

`plan` lists what is done, most valuable first. `kit` compiles it beforehand, on any machine. `tasks` does one item in a
process of its own, on the GPU or in the emulator (`cards`). `session` does all items and keeps a row for each. `report`
writes the JSON and the page, and `comparing` compares two of them.
"""
