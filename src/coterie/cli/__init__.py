"""The command line: one module for each command, and `main` that chooses among them."""
