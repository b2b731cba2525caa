"""What is best? Operator schedule, placement, exploration, store and report."""
