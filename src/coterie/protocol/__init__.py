"""What the two ends of a connection say: greetings, proofs, messages of clients and replicas."""
