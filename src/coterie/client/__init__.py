"""Calling a replicated object over the network."""
