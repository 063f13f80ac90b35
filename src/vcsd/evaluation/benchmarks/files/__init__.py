"""Benchmark files as records: TSV and Parquet."""
