"""Documents to rows of tokens, and vectors of rows to documents."""
