"""Readers of corpora and ontologies: from files to annotated texts and concepts."""
