"""What the workers of a benchmark do: replicas, clients, loads, and the systems beside us."""
