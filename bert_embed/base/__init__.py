"""What every other package uses, and what knows none of them."""
