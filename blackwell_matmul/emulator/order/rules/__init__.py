"""Rules of PTX's memory model, by kind of event and memory. Each hears its part of a run and tells findings."""
