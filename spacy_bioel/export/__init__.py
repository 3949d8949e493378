"""Linked documents to the formats of other programs: the inverse of `io/`."""
