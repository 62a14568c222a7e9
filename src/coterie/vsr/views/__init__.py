"""Views: cohorts, how a view is formed, and how its members come to know the same."""
