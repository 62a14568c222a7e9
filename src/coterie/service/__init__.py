"""Replicated objects as a service: replicas in processes, their clients' port, their files."""
