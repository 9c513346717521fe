"""Our encoder's programs on a GPU, beside sentence-transformers: see README.md here."""
