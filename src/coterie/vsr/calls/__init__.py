"""Calls: run at a primary, made from a transaction, sent until answered."""
