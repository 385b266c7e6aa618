"""What the three rate-limit headers say: one reading for each response."""
