"""Name normalisation, sentence boundaries and abbreviations. Uses plain strings only, not Docs."""
