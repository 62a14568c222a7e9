"""Unmodified programs as groups: agents with their apps, the gateway, and their supervisor."""
