"""What people ask for: every option of every command, declared and read."""
