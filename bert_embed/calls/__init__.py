"""What the calls of an Encoder take and return: settings, columns of texts, similarities."""
