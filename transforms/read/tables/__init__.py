"""Reading CSV and Parquet."""
