"""Normalisation of names, sentence borders and abbreviations; depends on strings only."""
