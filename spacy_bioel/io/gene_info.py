"""Genes: the table gene_info of NCBI Gene (https://ftp.ncbi.nlm.nih.gov/gene/DATA/README)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from spacy_bioel.io.table import Column, read_table
from spacy_bioel.types import ORGANISM, Concept

_COLUMNS: dict[str, Column] = {
    "id": "GeneID",
    "name": "Symbol",
    "synonyms": (
        "Full_name_from_nomenclature_authority", "description", "Synonyms", "Other_designations",
    ),
    "types": ("type_of_gene", "tax_id"),
    "xrefs": "dbXrefs",
}  # fmt: skip
_MISSING = "-"
# Symbols of records that await their own.
_NO_SYMBOL = "NEWENTRY"


def read_gene_info(path: str | os.PathLike[str], *, prefix: str = "NCBIGene") -> Iterator[Concept]:
    """Stream the genes of one organism or of several; types are "Gene", the type of gene, and the
    organism, e.g. "NCBITaxon:9606".

    prefix (str): Vocabulary of the ids, which are numbers.
    YIELDS (Concept): One per gene that has a symbol.
    RAISES BioelError: Those of `read_table`.
    """
    for gene in read_table(path, columns=_COLUMNS, prefix=prefix, separator="\t"):
        names = tuple(name for name in gene.names if name not in (_MISSING, _NO_SYMBOL))
        if names:
            xrefs = tuple(xref for xref in gene.xrefs if xref != _MISSING)
            # Two columns: the kind of gene, and the number of the organism.
            types = ("Gene", *(f"{ORGANISM}{t}" if t.isdigit() else t for t in gene.types))
            yield replace(gene, names=names, types=types, xrefs=xrefs)
