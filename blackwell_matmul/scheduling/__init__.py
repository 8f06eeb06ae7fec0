"""Which schedules a rung can choose from, what each takes on a GPU, why one cannot run, and which one is taken."""
