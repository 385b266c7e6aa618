"""Readings: the three rate-limit headers of each response."""
