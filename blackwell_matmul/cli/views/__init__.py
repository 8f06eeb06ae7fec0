"""What a person sees of each command: lines of `rich` made from a result. Nothing here runs or decides anything."""
