"""What models make of hidden states beside dense vectors: sparse ones, multi-vectors, scores."""
