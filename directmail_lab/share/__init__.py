"""Handing recordings and notebooks on: audit, zip and pages."""
