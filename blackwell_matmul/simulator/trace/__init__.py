"""What ran when: a listener, and what a finding shows of its events."""
