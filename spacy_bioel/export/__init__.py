"""Writers for linked documents in the formats of other programs; `io` contains the readers."""
