"""From texts to rows of input_ids, and back to documents."""
