"""Names of cell lines that are also names of genes."""

import pytest
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_bioel.entities.usual_names import with_cell_lines
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept, ScoredSpan


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("cells") / "kb"
    build_kb([Concept("CVCL_1", ("QC9", "QC-9")), Concept("CVCL_2", ("HEL",))], folder)
    return KnowledgeBase.open(folder)


@pytest.mark.parametrize(
    ("text", "spans", "expected"),
    [
        ("QC9 cells grew", [(0, 1, "Gene", 0.7)], [(0, 1, "CellLine", 0.9)]),
        ("QC9 and H22 cells grew", [], [(0, 1, "CellLine", 0.9)]),
        ("the QC9 cell line", [], [(1, 2, "CellLine", 0.9)]),
        ("QC9 variants in cells", [(0, 1, "Gene", 0.7)], [(0, 1, "Gene", 0.7)]),
        ("QC9 cells grew", [(0, 1, "Gene", 1.0)], [(0, 1, "Gene", 1.0)]),  # forced
        ("QC9 cells grew", [(0, 2, "Disease", 0.9)], [(0, 2, "Disease", 0.9)]),
        ("HEL cells grew", [(0, 1, "Gene", 0.7)], [(0, 1, "CellLine", 0.9)]),
        ("HEL cells grew", [], []),  # a word in capitals
        ("CD4 T cells grew", [(0, 1, "Gene", 0.9)], [(0, 1, "Gene", 0.9)]),
    ],
)
def test_names_before_cells(
    kb: KnowledgeBase, text: str, spans: list[ScoredSpan], expected: list[ScoredSpan]
) -> None:
    doc = Doc(Vocab(), words=text.split())
    assert list(with_cell_lines(doc, spans, kb)) == expected
