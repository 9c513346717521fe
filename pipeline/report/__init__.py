"""Makes report.html, which shows what a run embedded, what was lost, and its vectors."""
