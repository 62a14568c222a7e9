"""From the bytes of journals to columns: segments, growth, the Spark data source."""
