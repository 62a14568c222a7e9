"""The replicated state machine: commands in order, sessions, a clock, and its state as chunks."""
