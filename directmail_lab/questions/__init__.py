"""Questions that are asked of a recording; none imports another."""
