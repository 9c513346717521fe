"""What travels between the stages."""
