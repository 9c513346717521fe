"""BERT's WordPiece tokenizer."""
