"""Settings for all tests."""

from hypothesis import settings

# The same examples on every run, or a red check would not be the change's doing; and no deadline,
# because a shared machine is sometimes slow. No database: what is remembered is not repeatable.
settings.register_profile("coterie", derandomize=True, deadline=None, database=None)
settings.load_profile("coterie")
