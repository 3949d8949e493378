"""Genes of the organisms that a document names."""

from pathlib import Path
from typing import Any

import pytest
from spacy.language import Language
from spacy.tokens import Doc, Span
from tiny import blank

from spacy_bioel.entities.species import organism_words
from spacy_bioel.kb.build import build_kb
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.types import Concept

HUMAN, MOUSE = "NCBITaxon:9606", "NCBITaxon:10090"
GENES = [
    Concept("NCBIGene:1", ("ABC1", "alpha protein"), types=("Gene", HUMAN)),
    Concept("NCBIGene:2", ("XYZ2",), types=("Gene", HUMAN)),
]
OF_MICE = [Concept("NCBIGene:11", ("Abc1", "alpha protein"), types=("Gene", MOUSE))]
ORGANISMS = [
    Concept(HUMAN, ("human", "patients"), types=("Species",)),
    Concept(MOUSE, ("mouse", "mice"), types=("Species",)),
    Concept("NCBITaxon:562", ("bacteria",), types=("Species", "Prokaryote")),
    Concept("NCBITaxon:10407", ("virus",), types=("Species", "Virus")),
    Concept("NCBITaxon:4932", ("yeast",), types=("Species",)),
]


def made(folder: Path, genes: list[Concept], **settings: Any) -> Language:
    build_kb(genes, folder / "genes")
    build_kb(ORGANISMS, folder / "organisms")
    kb = {"Gene": str(folder / "genes"), "Species": str(folder / "organisms")}
    nlp = blank()
    config = {"kb": kb, "evidence": {"dense": False}, "nil_threshold": 0.4} | settings
    nlp.add_pipe("bioel_linker", config=config)
    return nlp


@pytest.fixture
def human(tmp_path) -> Language:
    return made(tmp_path, GENES)


@pytest.fixture
def both(tmp_path) -> Language:
    return made(tmp_path, GENES + OF_MICE)


def linked(nlp: Language, text: str) -> list[str]:
    """Return the ids of the genes ABC1 and XYZ2 in a text that may name organisms."""
    doc = nlp.make_doc(text)
    labels = {"ABC1": "Gene", "XYZ2": "Gene"} | dict.fromkeys(
        ("human", "patients", "mouse", "mice", "bacteria", "virus", "yeast"), "Species"
    )
    spans = [Span(doc, t.i, t.i + 1, label=labels[t.text]) for t in doc if t.text in labels]
    doc.spans["bioel"] = spans
    doc = nlp.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    return [span.kb_id_ for span in doc.spans["bioel"] if span.label_ == "Gene"]


IN_MICE = "In mice and mouse cells"


@pytest.mark.parametrize(
    ("genes", "text", "expected"),
    [
        # Without a named organism, genes are human.
        ("human", "ABC1 binds XYZ2", ["NCBIGene:1", "NCBIGene:2"]),
        ("both", "ABC1 binds XYZ2", ["NCBIGene:1", "NCBIGene:2"]),
        ("human", f"{IN_MICE} ABC1 binds XYZ2", ["NIL", "NIL"]),
        ("human", "In patients ABC1 binds XYZ2", ["NCBIGene:1", "NCBIGene:2"]),
        # The organism right before the gene counts most.
        ("human", f"{IN_MICE} of mice and mice human ABC1 is low", ["NCBIGene:1"]),
        # Genes of several organisms compete.
        ("both", f"{IN_MICE} ABC1 is low", ["NCBIGene:11"]),
        ("both", "In patients ABC1 is low", ["NCBIGene:1"]),
        ("both", "human ABC1 and mouse ABC1", ["NCBIGene:1", "NCBIGene:11"]),
        # And the one right after it: "in patients" belongs to the gene before it.
        ("both", "ABC1 in patients and ABC1 in mice", ["NCBIGene:1", "NCBIGene:11"]),
        ("both", "ABC1 expression in mice and ABC1 of patients", ["NCBIGene:11", "NCBIGene:1"]),
        # Words for people count without being mentions; "Mice" is not one, because of its case.
        ("human", "Mice and mice with ABC1", ["NIL"]),
        ("human", "Mice with ABC1 , women and Women and a man", ["NCBIGene:1"]),
        # Genes near microbes belong to their hosts; yeast has genes of its own.
        (
            "human",
            "bacteria and virus with bacteria : ABC1 binds XYZ2",
            ["NCBIGene:1", "NCBIGene:2"],
        ),
        ("both", "virus in mice : ABC1", ["NCBIGene:11"]),
        ("human", "yeast and virus and yeast : ABC1", ["NIL"]),
    ],
)
def test_genes_belong_to_the_named_organisms(request, genes, text, expected):
    assert linked(request.getfixturevalue(genes), text) == expected


def test_a_gene_that_hosts_lack_may_belong_to_a_microbe(human):
    def score(text: str) -> float:
        return float(linked_gene(human, text, "ABC12", "virus")._.candidates[0].score)

    assert score("ABC12 of the virus") < 0.4


def test_training_mentions_of_one_organism_do_not_decide(both):
    linker: Any = both.get_pipe("bioel_linker")
    linker.alias_table = AliasTable({"abc1": {"NCBIGene:1": 50}})
    assert linked(both, "In mice and mouse cells ABC1 is low") == ["NCBIGene:11"]
    assert linked(both, "the mouse ABC1") == ["NCBIGene:11"]
    assert linked(both, "ABC1 is low") == ["NCBIGene:1"]


def test_scores_are_probabilities(both):
    doc = both.make_doc("In mice ABC1 is low")
    doc.spans["bioel"] = [Span(doc, 1, 2, label="Species"), Span(doc, 2, 3, label="Gene")]
    doc = both.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    scores = [c.score for c in doc.spans["bioel"][1]._.candidates]
    assert sorted(scores, reverse=True) == scores
    assert len(scores) == 2 and 0.4 < sum(scores) <= 1


def test_the_rules_can_be_switched_off(tmp_path):
    nlp = made(tmp_path, GENES, evidence={"dense": False}, entities={"genes": None})
    assert linked(nlp, "In mice and mouse cells ABC1 binds XYZ2") == ["NCBIGene:1", "NCBIGene:2"]


def test_a_document_alone_and_in_a_batch(human):
    def marked(text: str) -> Doc:
        doc = human.make_doc(text)
        doc.spans["bioel"] = [
            Span(doc, t.i, t.i + 1, label="Species" if t.text == "mice" else "Gene")
            for t in doc
            if t.text in ("mice", "ABC1")
        ]
        return doc

    texts = ["ABC1", "mice and mice with ABC1", "", "ABC1 again"]
    found = human.pipe([marked(text) for text in texts])
    ids = [[s.kb_id_ for s in doc.spans["bioel"] if s.label_ == "Gene"] for doc in found]
    assert ids == [["NCBIGene:1"], ["NIL"], [], ["NCBIGene:1"]]


def test_an_organism_before_a_composite_counts_for_its_parts(tmp_path):
    mouse = [*OF_MICE, Concept("NCBIGene:12", ("Xyz2",), types=("Gene", MOUSE))]
    nlp = made(tmp_path, GENES + mouse)
    doc = nlp.make_doc("mouse ABC1 and XYZ2")
    doc.spans["bioel"] = [Span(doc, 0, 1, label="Species"), Span(doc, 1, 4, label="Gene")]
    doc = nlp.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    assert doc.spans["bioel"][1]._.cuis == ("NCBIGene:11", "NCBIGene:12")


def linked_gene(nlp: Language, text: str, gene: str, *organisms: str) -> Any:
    """Return the linked span of a gene in a text that names these organisms."""
    doc = nlp.make_doc(text)
    labels = dict.fromkeys(organisms, "Species") | {gene: "Gene"}
    places = [
        (text.index(words), text.index(words) + len(words), labels[words]) for words in labels
    ]
    doc.spans["bioel"] = [
        doc.char_span(start, end, label=label) for start, end, label in sorted(places)
    ]
    doc = nlp.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
    return next(span for span in doc.spans["bioel"] if span.label_ == "Gene")


def test_a_synonym_counts_for_genes_of_the_same_symbol(tmp_path):
    mouse = Concept("NCBIGene:11", ("Abc1", "Zork"), types=("Gene", MOUSE))
    nlp = made(tmp_path, [*GENES, mouse])
    assert linked_gene(nlp, "human Zork is low", "Zork", "human").kb_id_ == "NCBIGene:1"
    assert linked_gene(nlp, "mouse Zork is low", "Zork", "mouse").kb_id_ == "NCBIGene:11"


def test_a_short_form_is_a_name_too(human):
    # Only ABC1 is a name in the knowledge base, "alpha binding cassette" is not.
    text = "Patients with alpha binding cassette 1 (ABC1) deficiency."
    for gene in ("ABC1", "alpha binding cassette 1"):
        assert linked_gene(human, text, gene).kb_id_ == "NCBIGene:1"


@pytest.mark.parametrize("gene", ["ABC-1", "human ABC1 gene", "hABC1"])
def test_other_spellings(human, gene):
    assert linked_gene(human, f"Patients have {gene} now", gene).kb_id_ == "NCBIGene:1"


def test_a_prefix_names_the_organism(both):
    def score(gene: str) -> float:
        candidates = linked_gene(both, f"The {gene} is low", gene)._.candidates
        return next(float(c.score) for c in candidates if c.id == "NCBIGene:11")

    assert score("hABC1") < score("ABC1") < score("mABC1")


def test_the_first_letter_of_a_name_is_not_a_prefix(tmp_path):
    other = [Concept("NCBIGene:3", ("MABC1",), ("Gene", HUMAN))]
    nlp = made(tmp_path, [*GENES, *OF_MICE, *other])
    assert linked_gene(nlp, "The mABC1 is low", "mABC1").kb_id_ == "NCBIGene:3"


def test_a_document_that_names_twelve_organisms(tmp_path):
    build_kb(GENES + OF_MICE, tmp_path / "genes")
    words = [f"beast{letter}" for letter in "abcdefghijkl"]
    beasts = [Concept(f"NCBITaxon:{i}", (w,), ("Species",)) for i, w in enumerate(words, 7)]
    build_kb([*ORGANISMS, *beasts], tmp_path / "organisms")
    kb = {"Gene": str(tmp_path / "genes"), "Species": str(tmp_path / "organisms")}
    nlp = blank()
    settings = {"kb": kb, "evidence": {"dense": False}, "nil_threshold": 0.4}
    nlp.add_pipe("bioel_linker", config=settings)
    text = f"{', '.join(words)} have ABC1"
    assert linked_gene(nlp, text, "ABC1", *words).kb_id_ == "NIL"
    text = f"{', '.join(words)} have no mouse ABC1"
    assert linked_gene(nlp, text, "ABC1", "mouse", *words).kb_id_ == "NCBIGene:11"


@pytest.mark.parametrize(("word", "id"), [("CAT", "NCBIGene:4"), ("was", "NCBIGene:5")])
def test_a_symbol_that_is_a_word(tmp_path, word, id):
    # The detector decides whether a word is a mention; that it names an organism does not matter.
    genes = [Concept("NCBIGene:4", ("CAT",), ("Gene", HUMAN))]
    genes += [Concept("NCBIGene:5", ("WAS",), ("Gene", HUMAN))]
    nlp = made(tmp_path, genes + OF_MICE)
    assert linked_gene(nlp, f"In patients {word} is low", word).kb_id_ == id
    assert linked_gene(nlp, f"In MICE {word} is low", word).kb_id_ == id


def test_a_knowledge_base_of_one_organism(tmp_path):
    nlp = made(tmp_path, OF_MICE)
    assert linked_gene(nlp, "Abc1 is low", "Abc1").kb_id_ == "NCBIGene:11"
    assert linked_gene(nlp, "In patients ABC1 is low", "ABC1").kb_id_ == "NIL"


HOMONYMS = [
    # "Sag" is the symbol of one mouse gene and a synonym of another.
    Concept("NCBIGene:21", ("Sag",), ("Gene", MOUSE)),
    Concept("NCBIGene:22", ("Rnf7", "Rbx2", "Sag"), ("Gene", MOUSE)),
    # Only the human genes of the same symbols have descriptions.
    Concept("NCBIGene:23", ("Slc16a1", "Mct-1"), ("Gene", MOUSE)),
    Concept("NCBIGene:24", ("Mcts1", "Mct-1"), ("Gene", MOUSE)),
    Concept("NCBIGene:3", ("SLC16A1", "monocarboxylate transporter"), ("Gene", HUMAN)),
    Concept("NCBIGene:4", ("MCTS1", "multiple copies in T-cell malignancy"), ("Gene", HUMAN)),
    # A tie in mice: only one of the human genes has this name.
    Concept("NCBIGene:25", ("Serpine1", "PAI1"), ("Gene", MOUSE)),
    Concept("NCBIGene:26", ("Serpine2", "PAI1"), ("Gene", MOUSE)),
    Concept("NCBIGene:5", ("SERPINE1", "PAI1"), ("Gene", HUMAN)),
    Concept("NCBIGene:6", ("SERPINE2", "GDN"), ("Gene", HUMAN)),
]


@pytest.mark.parametrize(
    ("text", "gene", "expected"),
    [
        ("mice without Sag", "Sag", "NCBIGene:21"),
        ("mice without Sag/Rbx2 ligase", "Sag", "NCBIGene:22"),
        ("In mice, Mct-1 is a transporter of monocarboxylates", "Mct-1", "NCBIGene:23"),
        ("In mice, Mct-1 has multiple copies in a malignancy of T-cells", "Mct-1", "NCBIGene:24"),
        # Without evidence: many more publications are about the human gene SLC16A1.
        ("In mice, Mct-1 is low", "Mct-1", "NCBIGene:23"),
        ("In mice, PAI1 is low", "PAI1", "NCBIGene:25"),
    ],
)
def test_homonyms_are_resolved_by_other_words_of_the_document(tmp_path, text, gene, expected):
    nlp = made(tmp_path, HOMONYMS)
    span = linked_gene(nlp, text, gene, "mice")
    assert span.kb_id_ == expected
    assert sum(c.score for c in span._.candidates) <= 1.0001


def test_a_gene_of_many_organisms_is_found_in_each(tmp_path):
    # More organisms than a mention keeps candidates, and mouse has the highest id.
    organisms = [HUMAN, *(f"NCBITaxon:{i}" for i in range(101, 108)), MOUSE]
    genes = [Concept(f"NCBIGene:{i}", ("ABC1",), ("Gene", o)) for i, o in enumerate(organisms, 1)]
    nlp = made(tmp_path, genes)
    span = linked_gene(nlp, "In mice ABC1 is low", "ABC1", "mice")
    assert span.kb_id_ == "NCBIGene:9"
    assert len(span._.candidates) == 5


@pytest.mark.parametrize(
    ("text", "organism", "expected"),
    [
        ("By a yeast two-hybrid screen, ABC1 binds itself", "yeast", "NCBIGene:1"),
        ("ABC1 in cancer of nude mice", "mice", "NCBIGene:1"),
        ("ABC1 in BALB/c nude mice", "mice", "NCBIGene:1"),
        ("ABC1 in BALB/c mice", "mice", "NCBIGene:11"),
        ("ABC1 in RAW 264.7 and MIN6 cells", "", "NCBIGene:11"),
        ("ABC1 in littermates", "", "NCBIGene:11"),
        ("ABC1 in HeLa cells", "", "NCBIGene:1"),
    ],
)
def test_experimental_systems_do_not_count_and_cell_lines_do(both, text, organism, expected):
    assert linked_gene(both, text, "ABC1", *filter(None, [organism])).kb_id_ == expected


def test_parts_of_a_composite_are_of_one_organism(tmp_path):
    # An unclear organism lowers the score once, not once for each part.
    genes = [
        Concept(f"NCBIGene:{number}{i}", (f"ABC{i}",), ("Gene", organism))
        for number, organism in enumerate((HUMAN, MOUSE, "NCBITaxon:10116"), 1)
        for i in (1, 2)
    ]
    span = linked_gene(made(tmp_path, genes), "Patients and mice : ABC1/2 is low", "ABC1/2", "mice")
    first, second = span._.candidates[:2]
    assert span._.cuis == (first.id, second.id)
    assert first.score * second.score < 0.4 <= min(first.score, second.score)


def test_a_symbol_in_bacterial_spelling_does_not_belong_to_the_host(human):
    text = "bacteria with xyzA"
    assert linked_gene(human, text, "xyzA", "bacteria").kb_id_ == "NIL"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Leptin in lactating heifers and a bullock.", ["NCBITaxon:9913"] * 2),
        ("Two minipigs, a rooster and three ewes.", [f"NCBITaxon:{n}" for n in (9823, 9031, 9940)]),
        ("Tomcats and a Rottweiler were typed.", ["NCBITaxon:9685", "NCBITaxon:9615"]),
        ("The RAM of a computer, a bull market and steering.", []),
    ],
)
def test_words_for_domestic_animals(text, expected):
    assert [organism for *_, organism in organism_words(text)] == expected
