"""Files, local or in a store; importing it loads neither Beam nor BERT."""
