"""Rules of PTX's memory model, by kind of event and memory. Each rule gets its events of a run and reports findings."""
