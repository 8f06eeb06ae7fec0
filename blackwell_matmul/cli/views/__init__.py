"""Views of each command: lines of `rich` made from a result; they run and decide nothing."""
