"""Corpus and ontology readers, which turn files into annotated texts and concepts."""
