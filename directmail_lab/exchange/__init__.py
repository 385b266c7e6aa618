"""Requests and responses: their values, paths and operations, bodies, and links to next pages."""
