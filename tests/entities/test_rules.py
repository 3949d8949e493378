"""What rules for genes, variants and shorthand do beyond single texts: scores, tables, switches."""

from pathlib import Path
from typing import Any

import pytest
from cases import Cases, ids_of
from spacy.tokens import Doc
from spacy.vocab import Vocab
from tiny import linking_nlp

from spacy_bioel.entities.genes import create_genes_v1
from spacy_bioel.entities.organism_genes import orthologs_of
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.entities.usual_names import MAX_PARTS, add_usual_names, usual_names
from spacy_bioel.entities.variant_grammar import (
    REWRITES,
    VARIANT_FORMS,
    find_variants,
    read_variant,
)
from spacy_bioel.entities.variants import VariantGenes, create_variants_v1
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.bundled import starter_kb
from spacy_bioel.kb.edit import NameEdit, edit_names
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.types import Candidate, Concept, Link

pytestmark = pytest.mark.filterwarnings("ignore:.*W323")
HUMAN, MOUSE, CATTLE = "NCBITaxon:9606", "NCBITaxon:10090", "NCBITaxon:9913"


@pytest.fixture
def cases(tmp_path) -> Cases:
    """The knowledge bases and pipelines of the cases, which a test may change."""
    cases = Cases(Path(__file__).with_name("cases.yml"))
    cases.folder = tmp_path
    return cases


def scores(cases: Cases, pipeline: str, text: str, **labels: str) -> dict[str, float]:
    """Return the score of each candidate for the last mention of a gene."""
    doc = cases.nlp(pipeline)(cases.doc(pipeline, text, labels))
    *_, gene = (span for span in doc.spans["bioel"] if span.label_ == "Gene")
    return {candidate.id: float(candidate.score) for candidate in gene._.candidates}


def test_a_gene_that_hosts_lack_may_belong_to_a_microbe(cases):
    found = scores(cases, "human", "ABC12 of the virus", ABC12="Gene", virus="Species")
    assert max(found.values()) < 0.4


def test_scores_of_genes_are_probabilities(cases):
    found = list(scores(cases, "both", "In mice ABC1 is low", mice="Species", ABC1="Gene").values())
    assert sorted(found, reverse=True) == found
    assert len(found) == 2 and 0.4 < sum(found) <= 1
    found = list(scores(cases, "many", "ABC1 in mice", ABC1="Gene", mice="Species").values())
    assert len(found) == 5
    mct = {"Mct-1": "Gene", "mice": "Species"}
    assert sum(scores(cases, "homonyms", "In mice, Mct-1 is low", **mct).values()) <= 1.0001


def test_a_prefix_names_the_organism(cases):
    hABC1, ABC1, mABC1 = (
        scores(cases, "both", f"The {gene} is low", **{gene: "Gene"})["NCBIGene:11"]
        for gene in ("hABC1", "ABC1", "mABC1")
    )
    assert hABC1 < ABC1 < mABC1


def test_training_mentions_of_one_organism_do_not_decide(cases):
    linker: Any = cases.nlp("both").get_pipe("bioel_linker")
    linker.alias_table = AliasTable({"abc1": {"NCBIGene:1": 50}})
    labels = {"ABC1": "Gene", "mouse": "Species", "mice": "Species"}
    expected = {"In mice and mouse cells ABC1 is low": 11, "the mouse ABC1": 11, "ABC1 is low": 1}
    for text, id in expected.items():
        found = cases.links(pipeline="both", text=text, labels=labels, of="Gene")
        assert found == {"ABC1": f"NCBIGene:{id}"}


def test_parts_of_a_composite_are_of_one_organism(cases):
    """An unclear organism lowers the score once, not once for each part."""
    labels = {"ABC1/2": "Gene", "mice": "Species"}
    doc = cases.doc("three", "Patients and mice : ABC1/2 is low", labels)
    (gene,) = (s for s in cases.nlp("three")(doc).spans["bioel"] if s.label_ == "Gene")
    first, second = gene._.candidates[:2]
    assert gene._.cuis == (first.id, second.id)
    assert first.score * second.score < 0.5 <= min(first.score, second.score)


def test_no_column_of_a_joined_knowledge_base_is_computed(cases):
    """Computing the names of all vocabularies would make the first link take seconds."""
    nlp = cases.nlp("three")
    linker: Any = nlp.get_pipe("bioel_linker")
    before = linker.kb
    linker.set_kb(JoinedKnowledgeBase(before.parts, labels=before.labels))
    columns = set(vars(linker.kb))
    nlp(cases.doc("three", "Patients and mice : ABC1 is low", {"ABC1": "Gene", "mice": "Species"}))
    assert set(vars(linker.kb)) == columns
    linker.set_kb(before)


@pytest.mark.parametrize("pipeline", ["human", "usual", "shorthand"])
def test_a_document_alone_and_in_a_batch(cases, pipeline):
    texts = [p.values[0] for p in cases if p.values[0].get("pipeline") == pipeline]

    def docs() -> list[Doc]:
        return [cases.doc(pipeline, case["text"], case.get("labels", {})) for case in texts]

    nlp = cases.nlp(pipeline)
    assert [ids_of(doc) for doc in nlp.pipe(docs())] == [ids_of(nlp(doc)) for doc in docs()]
    assert len(texts) > 5


def test_usual_names_can_be_switched_off_and_be_those_of_a_user(cases):
    linker: Any = cases.nlp("usual").get_pipe("bioel_linker")
    text, labels = "Serum ferritin protein and RAF rose.", {"ferritin": "Gene", "RAF": "Gene"}
    found = cases.links(pipeline="usual", text=text, labels=labels)
    assert found == {"ferritin": "NCBIGene:8|NCBIGene:9", "RAF": "NCBIGene:6"}
    edit_names(cases.kb("usual").path, {"NCBIGene:12": NameEdit(add=("ferritin",))})
    linker.set_kb(linker.cfg["kb"])
    found = cases.links(pipeline="usual", text=text, labels=labels)
    assert found == {"ferritin": "NCBIGene:12", "RAF": "NCBIGene:6"}
    linker.entities = RuleSet({"genes": create_genes_v1(usual_names=False)})
    assert cases.links(pipeline="usual", text=text, labels=labels)["RAF"] != "NCBIGene:6"
    assert cases.links(pipeline="usual", text="Silencing of ER slowed growth.") == {}


def test_symbols_of_usual_names_are_human_genes():
    kb = starter_kb("starter:genes")
    assert len(usual_names()) <= 400 and all(n.count("-") < MAX_PARTS for n in usual_names())
    for name, usual in usual_names().items():
        for symbol in usual.symbols:
            _, concepts, is_preferred = kb.concepts_of_names(kb.lookup_names([symbol]))
            human = [r for r in concepts[is_preferred].tolist() if HUMAN in kb.types_of(r)]
            assert len(human) == 1, (name, symbol)


def test_a_word_with_many_hyphens_is_looked_up_a_few_times(monkeypatch):
    asked: list[str] = []
    names = type("Names", (dict,), {"__contains__": lambda _, name: asked.append(name)})()
    monkeypatch.setattr("spacy_bioel.entities.usual_names.usual_names", lambda: names)
    doc = Doc(Vocab(), ["α-" * 1000 + "α"])
    add_usual_names(doc, FoundSpans(doc))
    assert asked == ["α-α-α-α", "α-α-α", "α-α", "α"]


def test_orthologs_belong_to_the_bundled_genes(tmp_path):
    bundled = starter_kb("starter:genes")
    assert orthologs_of(bundled, {MOUSE}) == {}
    assert orthologs_of(bundled, {CATTLE, MOUSE})[CATTLE]["lalba"] == "NCBIGene:281894"
    cattle = Concept(CATTLE, ("cattle",), types=("Species",))
    build_kb([Concept("NCBIGene:3906", ("LALBA",), types=("Gene", HUMAN)), cattle], tmp_path / "kb")
    own: Any = linking_nlp(tmp_path / "kb").get_pipe("bioel_linker")
    assert orthologs_of(own.kb, {CATTLE}) == {}


def test_shorthand_is_linked(cases):
    patterns = ["HTN", "severe HTN", "CAD", "n/v"]
    nlp = linking_nlp(cases.kb("shorthand").path, patterns, nil_threshold=0.0)

    def first(text: str) -> list[tuple[str, float]]:
        best = (span._.candidates[0] for span in nlp(text).ents)
        return [(candidate.id, float(candidate.score)) for candidate in best]

    found = first("severe HTN, CAD, n/v and HTN")
    assert [id for id, _ in found] == ["X:00", "X:06", "X:02", "X:00"] and found[-1][1] > 0.9
    nlp.get_pipe("bioel_linker").entities = RuleSet({})  # type: ignore[attr-defined]
    assert first("HTN")[0][1] < found[-1][1]


@pytest.mark.parametrize("form", VARIANT_FORMS, ids=lambda form: form.name)
def test_the_example_of_a_form_is_found_and_read(form):
    text = f"It had {form.example}, and ({form.example}) was new."
    assert [text[a:b] for a, b in find_variants(text)] == [form.example] * 2
    variant = read_variant(form.example, 0, len(form.example))
    assert (variant and (variant.hgvs or variant.component) or "") == form.reading


def test_the_examples_of_rewrites():
    for rewrite in REWRITES:
        assert rewrite.pattern.sub(rewrite.replacement, rewrite.before) == rewrite.after


@pytest.mark.parametrize("text", ["9" * 6000 + "del", "ins" * 6000])
def test_a_very_long_mention_is_not_a_variant(text):
    assert read_variant(text) is None


def test_the_gene_of_a_variant():
    text = "BRAF and KRAS in tumours. KRAS was G12D and BRAF was V600E. Then L858R of EGFR; R1 too."
    genes = {"BRAF": "G:1", "KRAS": "G:2", "EGFR": "G:3"}
    links = [
        Link(at, at + 4, "Gene", (id,))
        for name, id in genes.items()
        for at in range(len(text))
        if text.startswith(name, at)
    ]

    def gene(mention: str) -> str | None:
        start = text.index(mention)
        return VariantGenes(text, links).of(start, start + len(mention))

    assert [gene(name) for name in ("G12D", "V600E", "L858R")] == ["G:2", "G:1", "G:3"]
    assert gene("R1") == "G:3"  # the gene of its sentence
    assert VariantGenes(text, [Link(0, 4, "Gene")]).of(0, 4) is None


def test_a_gene_without_a_link_is_none():
    text = "DGAT1 K232A of cattle; Foxp2 of mice and Foxp2 A1B. K232A (c.35delG of GJB2). 35delG."
    unlinked = (Candidate("G:1", 0.1, "DGAT1", "exact"),)
    links = [Link(0, 5, "Gene", (), unlinked)]
    links += [Link(at, at + 5, "Gene", ("G:2",)) for at in (23, 41)]
    links.append(Link(text.index("GJB2"), text.index("GJB2") + 4, "Gene", ("G:3",)))
    for change in ("K232A", "c.35delG", "35delG."):
        start = text.rindex(change)
        links.append(Link(start, start + len(change.strip(".")), "Variant"))

    def gene(start: int, change: str) -> str | None:
        return VariantGenes(text, links).of(start, start + len(change))

    assert gene(6, "K232A") is None
    # The gene next to the same change elsewhere, not the most frequent gene.
    assert gene(text.index("35delG", 70), "35delG") == "G:3"
    assert VariantGenes("hTERT C228T; IRS1", [Link(13, 17, "Gene", ("G:2",))]).of(6, 11) is None
    of_tert = [Link(13, 17, "Gene", ("G:2",)), Link(22, 26, "Gene", ("G:4",))]
    text_of_tert = "hTERT C228T; IRS1 and TERT"
    assert VariantGenes(text_of_tert, [Link(0, 0, "Gene"), *of_tert]).of(6, 11) == "G:4"
    similar = (Candidate("G:1", 0.1, "DGAT", "ngram"),)  # not its name
    links[0] = Link(0, 5, "Gene", (), similar)
    assert gene(6, "K232A") == "G:2"


def test_a_mention_of_something_else_is_no_variant():
    doc = Doc(Vocab(), words=["T47D", "cells"])
    cell, gene, nothing = (
        [(0, 1, "CellLine", 0.6)],
        [(0, 1, "Gene", 0.6)],
        list[tuple[int, int, str, float]](),
    )
    for given, expected in (cell, cell), (gene, gene), (nothing, [(0, 1, "Variant", 0.99)]):
        found = FoundSpans(doc, given)
        create_variants_v1().propose([doc], [found])
        assert found.spans == expected
