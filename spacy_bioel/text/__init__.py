"""Name normalisation, sentence boundaries and abbreviations for plain strings (not Docs)."""
