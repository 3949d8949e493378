"""Write linked documents in the formats of other programs: the inverse of `io/`."""
