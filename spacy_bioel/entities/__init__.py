"""Kinds of text that need rules of their own: species, genes, variants, composites, notes."""
