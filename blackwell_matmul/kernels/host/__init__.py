"""Host: the checks of a call's arguments and the choice of its schedule, without device code."""
