"""The objects of a module group: its state, who has locked what, and who waits for whom."""
