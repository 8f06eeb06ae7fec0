"""Host code of the kernels: checks of a call's arguments, and the choice of a schedule."""
