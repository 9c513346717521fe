"""What a run writes: names, files, numbers of every kind, and their readers."""
