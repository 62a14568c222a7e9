"""Transactions: their names and events, two-phase commit from both sides, unreplicated clients."""
