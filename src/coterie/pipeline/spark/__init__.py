"""Spark itself: sessions, Java, clusters, and running a function for each of many items."""
