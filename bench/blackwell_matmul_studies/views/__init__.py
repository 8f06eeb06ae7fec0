"""Tables of the studies for the screen."""
