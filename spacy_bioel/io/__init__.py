"""Readers that parse corpora and ontologies into annotated texts and concepts."""
