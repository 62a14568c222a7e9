"""Object storage: journals read from, and results written to, addresses such as `s3://bucket/x`."""
