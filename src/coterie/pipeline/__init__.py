"""From the journals of all replicas to one history, on Spark. `docs/pipeline.md` is its page.

Nothing here is imported by replicas; it needs the extra `pipeline`.
"""
