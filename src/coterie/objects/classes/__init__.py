"""What a class says: its methods, types, state, errors and versions, read once and for all."""
