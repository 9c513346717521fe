"""Reading and loading tables of BigQuery."""
