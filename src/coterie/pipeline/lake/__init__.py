"""The lake: tables of all journals as Parquet, cut at fixed ranges of positions."""
