"""What ran when: listeners, what a finding shows of their events, and timelines."""
