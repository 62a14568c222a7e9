"""The one history of a group: judged, replayed, and every promise checked against it."""
