"""What compiled code tells before it runs: what differs, what raises, what is assigned."""
