"""The demo: telephone billing, from the callers to the bills, through a partition and a crash."""
