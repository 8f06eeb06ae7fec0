"""The same visits of tilus's and hidet's passes, found in less time."""
