"""Requests and responses: their values, paths and operations, and bodies."""
