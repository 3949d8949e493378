"""The trained label that an own label starts from, by the meaning of its name."""

import pytest

from spacy_bioel.plugins.evaluation.fine_tuning import choose_starts

KNOWN = ["CellLine", "Chemical", "Disease", "Gene", "Species", "Variant"]
STARTS = {
    "Disease": ["Disease", "diseases", "DISEASE", "Disorder", "disease_or_phenotypic_feature"],
    "CellLine": ["Cell_line", "cell lines"],
    "Gene": ["Gene_or_gene_product", "GGP", "Proteins"],
    "Chemical": ["Simple_chemical", "DRUG"],
    "Species": ["Organism", "Species"],
    "Variant": ["Mutation"],
    None: ["Anatomy"],
}


@pytest.mark.parametrize(
    ("own", "start"), [(own, start) for start, names in STARTS.items() for own in names]
)
def test_start_by_name(own, start):
    assert choose_starts([own, "x"], KNOWN, {}, told={"x": None})[own].label == start
