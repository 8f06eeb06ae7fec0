"""Rules of PTX's memory model, by kind of event and memory. Each listens to its part of a run and reports findings."""
