"""Replication over a partitioned network (**transis**): red, yellow, green and white actions."""
