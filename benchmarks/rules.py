"""The rules, lists and tables of names that `benchmarks/ablations.py` turns off, one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from spacy_bioel.entities import homonyms, organisms, species, usual_names, variant_grammar
from spacy_bioel.entities.variant_grammar import REWRITES, VARIANT_FORMS
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.text.normalize import normalize_name


class Rule(NamedTuple):
    """A rule and how to turn it off.

    lines (int): Of code, with its tables in code; files of data are not counted.
    off (Mapping): What replaces the functions and tables that stand for it, by path.
    unseen (Sequence[str]): Corpora and lists that it was not written from; none: there are no such.
    evidence (bool): It knows something that a model may use, whatever it earns as a decision.
    fresh (bool): What rules know about a knowledge base depends on it.
    ranks (bool): The candidates of strings depend on it.
    probe (Callable | None): Only documents for whose text this changes are linked again.
    """

    name: str
    lines: int
    off: Mapping[str, Any]
    unseen: Sequence[str] = ()
    evidence: bool = False
    fresh: bool = False
    ranks: bool = False
    probe: Callable[[str], Any] | None = None


LISTS = tuple(
    f"list: {name}" for name in ("short names", "expected", "genes in abstracts",
                                 "no false friends", "definitions")
)  # fmt: skip
GENES = ("nlm_gene", "gnormplus", "tmvar3_genes", "cg", *LISTS)
# The weights and members that were fitted or chosen on training documents of the gene corpora.
FITTED_GENES = ("tmvar3_genes", "cg", *LISTS)
UNREAD = ("tmvar3 facts, unread", "cg")
LISTED = ("list: own names",)
_NEVER = re.compile(r"(?!)")


def _same(doc: object, spans: Any, *_: object) -> Any:
    return spans


def _nothing(*_: object, **__: object) -> tuple[()]:
    return ()


def _usual(keep: Callable[[usual_names.UsualName], bool]) -> Callable[[], Any]:
    kept = {name: usual for name, usual in usual_names.usual_names().items() if keep(usual)}
    return lambda: kept


def _variants(text: str) -> list[Any]:
    """Return the variants in a text with the changes that they describe."""
    places = variant_grammar.find_variants(text)
    return [(place, variant_grammar.read_variant(text, *place)) for place in places]


def _without(
    feature: str, features: Sequence[str], weights: Callable[[], Fusion]
) -> Callable[[], Fusion]:
    """Return the weights with 0 for a feature, also in the hidden layer."""
    fitted, kept = weights(), np.array([name != feature for name in features])
    hidden = fitted.hidden * kept[:, None]
    return lambda: replace(fitted, direct=fitted.direct * kept, hidden=hidden)


def _pattern_without(row: int) -> re.Pattern[str]:
    """Return the pattern of variants without a form."""
    letters = [form.letters for form in VARIANT_FORMS]
    whole = "|".join(letters)
    others = "|".join(letters[:row] + letters[row + 1 :])
    return re.compile(variant_grammar._VARIANT.pattern.replace(whole, others))


RULES = [
    Rule("usual names", 105, {"entities.usual_names.usual_names": dict}, FITTED_GENES),
    Rule("usual names: members of families", 4,
         {"entities.usual_names.usual_names": _usual(lambda u: len(u.symbols) < 2)}, FITTED_GENES),
    Rule("usual names: that are not genes", 5,
         {"entities.usual_names.usual_names": _usual(lambda u: bool(u.symbols))}, FITTED_GENES),
    Rule("usual names: need words for genes", 6,
         {"entities.usual_names.usual_names": _usual(lambda u: not u.needs_context)}, FITTED_GENES),
    Rule("words for genes beside a name", 36,
         {"entities.usual_names.is_beside_gene_words": lambda *_: False}, GENES, evidence=True),
    Rule("codes", 33, {"entities.patterns.is_code": lambda *_: False}, GENES, evidence=True),
    Rule("proteins called by chemicals", 35,
         {"entities.usual_names.add_proteins": _nothing}, GENES),
    Rule("everyday words", 42, {"entities.genes.Genes._everyday_words": _nothing},
         GENES, evidence=True),
    Rule("other spellings", 45,
         {"entities.genes.other_spellings": lambda name: [normalize_name(name)]}, GENES),
    Rule("other spellings: words after", 6, {"entities.genes._AFTER_GENE": _NEVER}, GENES),
    # The corpora have hardly any of the names that these three rules are about.
    Rule("other spellings: words before", 6, {"entities.genes._BEFORE_GENE": _NEVER}),
    Rule("organisms by words: domestic animals", 13, {"entities.organisms._organism_tables":
         lambda tables=organisms._organism_tables: (*tables()[:2], {})}),
    Rule("symbols of bacteria", 4, {"entities.species._BACTERIAL_SYMBOL": _NEVER}),
    Rule("other spellings: joined words", 5, {"entities.genes._MAX_JOINED_WORDS": 1}, GENES),
    Rule("prefixes of organisms", 9,
         {"entities.species.ORGANISM_PREFIX": _NEVER, "entities.genes.ORGANISM_PREFIX": _NEVER},
         GENES, evidence=True),
    Rule("genes of other organisms by symbol", 25,
         {"entities.genes._add_genes_by_symbol": _nothing}, GENES),
    Rule("orthologs of cattle, pigs, ...", 95,
         {"entities.genes._orthologs_in": lambda *_: {}}, GENES),
    Rule("genes of flies, worms, yeasts", 85,
         {"entities.organism_genes.add_organism_genes": _nothing}, GENES),
    Rule("genes of flies: common words", 25,
         {"entities.organism_genes._is_named_gene": lambda *_: False}, GENES),
    Rule("genes of flies: alleles", 2, {"entities.organism_genes._ALLELE": _NEVER}, GENES),
    Rule("homonyms", 150,
         {"entities.genes.resolve_homonyms": lambda genes, _: genes}, FITTED_GENES),
    *(
        Rule(f"homonyms: {feature}", 2,
             {"entities.homonyms.homonym_weights": _without(
                  feature, homonyms.HOMONYM_FEATURES, homonyms.homonym_weights)}, FITTED_GENES)
        for feature in homonyms.HOMONYM_FEATURES
    ),
    Rule("organisms by words", 28, {"entities.organisms.organism_words": _nothing}, GENES),
    Rule("organisms by words: species_words.json", 10,
         {"entities.organisms._organism_tables": lambda: (_NEVER, [], {})}, GENES),
    Rule("microbes have hosts", 22, {"entities.species.is_microbe": lambda *_: False}, GENES),
    Rule("experimental systems", 6, {"entities.organisms._TOOLS": ()}, GENES),
    Rule("organism after 'in', 'of', 'from'", 13, {"entities.organisms._GENE_TO_ORGANISM": _NEVER},
         GENES, evidence=True),
    *(
        Rule(f"species assignment: {feature}", 3,
             {"entities.genes.default_weights": _without(
                  feature, species.SPECIES_FEATURES, species.default_weights)}, GENES)
        for feature in species.SPECIES_FEATURES
    ),
    Rule("chemicals: short forms in brackets", 95,
         {"entities.chemicals.Chemicals._definitions": lambda *_: {}}),
    Rule("chemicals: measures are no short forms", 5, {"entities.chemicals.find_words":
         lambda *_: None}),
    Rule("composites", 230, {"entities.composites.split_composite": lambda mention: []}, GENES),
    Rule("composites: further members", 60,
         {"entities.composites.end_with_members": lambda text, start, end: end}, GENES),
    Rule("composites: numbers without hyphens", 12, {"entities.composites._MORE_NUMBERS": _NEVER},
         GENES),
    Rule("composites: letters", 6, {"entities.composites._MORE_LETTERS": _NEVER}, GENES),
    Rule("composites: ranges", 10, {"entities.composites._MEMBER_RANGE": _NEVER}, GENES),
    Rule("composites: fixed coordinations", 6, {"entities.composites._FIXED_COORDINATION": _NEVER}),
    Rule("composites: shared parts of words", 42,
         {"entities.composites._with_whole_words": lambda segments: segments}, GENES),
    Rule("composites: word prefixes", 8, {"entities.composites._WORD_PREFIX": _NEVER}),
    Rule("composites: 'other'", 2, {"entities.composites._OTHER": _NEVER}),
    Rule("composites: cost of readings", 36, {"entities.composites._cost": lambda *_, **__: 0.0}),
    Rule("shorthand", 121, {"entities.shorthand.Shorthand.prepare":
         lambda s, batch: batch.queries,
                            "entities.shorthand.Shorthand.short_forms": lambda s, doc:
             {}}, ranks=True),
    *(
        Rule(f"variants: {form.name}", 2, {"entities.variant_grammar._VARIANT":
         _pattern_without(i)},
             probe=_variants)  # the shipped detector was trained on these documents
        for i, form in enumerate(VARIANT_FORMS)
    ),
    *(
        Rule(f"variants: rewrite {rewrite.before} to {rewrite.after}", 1,
             {"entities.variant_grammar.REWRITES": REWRITES[:i] + REWRITES[i + 1 :]},
             UNREAD, probe=_variants)
        for i, rewrite in enumerate(REWRITES)
    ),
    Rule("variants: mitochondria", 4, {"entities.variant_notation._MITOCHONDRIA": _NEVER},
         UNREAD, probe=_variants),
    Rule("variants: words for the level", 9,
         {"entities.variant_notation._PROTEIN_OR_BASES": _NEVER}, UNREAD, probe=_variants),
    Rule("variants: no bands of chromosomes", 2,
         {"entities.variant_grammar._CYTOGENETIC": _NEVER}, UNREAD, probe=_variants),
    Rule("variants: rs number after", 5, {"entities.variants._RS_AFTER": _NEVER},
         UNREAD, probe=_variants),
    Rule("variants: rs number before", 3, {"entities.variants._RS_BEFORE": _NEVER},
         UNREAD, probe=_variants),
    Rule("variants: symbols with a prefix", 8, {"entities.variants._PREFIXED_SYMBOL": _NEVER},
         UNREAD, probe=_variants),
    Rule("variants: gene of the same change", 18,
         {"entities.variants._change_at": lambda *_: None}, UNREAD, probe=_variants),
    Rule("variants: gene beside them", 14,
         {"entities.variants.VariantGenes._next_to": lambda *_: None}, UNREAD, probe=_variants),
    Rule("variants: plausible ones only", 12,
         {"entities.variants._is_plausible": lambda *_: True}, UNREAD),
    Rule("mentions: smoothing over the document", 24,
         {"mentions.find.smooth_over_document": lambda doc, spans, weight: list(spans)},
         GENES),
    Rule("mentions: trimming of markup and denials", 22,
         {"mentions.find.trim_borders": lambda doc, spans: list(spans)}),
    Rule("mentions: pairs of brackets", 4, {"mentions.find._BRACKETS": _NEVER}, GENES),
    Rule("mentions: short forms that the document defines", 26,
         {"mentions.find.add_defined_forms": _nothing}, GENES),
    Rule("mentions: texts in capitals", 16,
         {"dictionary.unambiguous.is_in_capitals": lambda text: False}),
    Rule("unambiguous names", 290,
         {"dictionary.unambiguous.UnambiguousNames.propose": _nothing},
         GENES),
    Rule("unambiguous names: instead of a mention without a concept", 45,
         {"linking.link.add_hidden_names": lambda batch, *_: ([], batch)},
         ("biored", "ncbi_disease")),
    Rule("unambiguous names: typing errors", 18,
         {"dictionary.unambiguous._without_slips": lambda token: token}),
    Rule("unambiguous names: annotation rates of strings", 12,
         {"dictionary.unambiguous.annotation_counts": lambda *_: (0, 0)}, GENES, evidence=True),
    Rule("unambiguous names: annotation rates of kinds", 25,
         {"dictionary.unambiguous.name_kinds": lambda *_: ["none"]}, GENES),
    Rule("unambiguous names: never the genes of other organisms", 4,
         {"dictionary.unambiguous._HUMAN": "none"}, GENES, fresh=True),
    Rule("unambiguous names: single words that are not genes", 5,
         {"dictionary.unambiguous.annotation_rate": lambda *_: 1.0}, GENES),
    Rule("names: everyday.txt", 6, {"dictionary.unambiguous.everyday_words": frozenset},
         (*GENES, "hpo"),
         evidence=True, fresh=True),
    Rule("names: short names match by case", 12,
         {"dictionary.unambiguous.is_acronym": lambda name: False}, (*GENES, "hpo"), fresh=True),
    Rule("names: why a string is not a name", 28,
         {"dictionary.unambiguous.why_not_name": lambda *_, **__: ""}, (*GENES, "hpo"), fresh=True),
    Rule("spelling of queries", 8,
         {"linking.candidates.CandidateGenerator._corrected":
         lambda self, query: query}, ranks=True),
    Rule("coherence: agreement in a document", 36,
         {"linking.link.agree_in_documents":
          lambda batch, pairs, ranked, weight: [ranked[pair] for pair in pairs]}, GENES),
    Rule("ties are NIL", 4, {"linking.link.is_tied": lambda candidates: False}, GENES),
    Rule("dictionary: adjectives.json", 9, {"dictionary.lookup._may_be_adjective":
         lambda *_: False}, ("hpo",)),
    Rule("dictionary: typing errors", 14,
         {"dictionary.lookup.DictionaryLookup.corrected_word": lambda self, word: word}),
    Rule("dictionary: broken words", 6,
         {"dictionary.lookup.broken_words": _nothing}),
    Rule("dictionary: another sign", 7, {"dictionary.lookup._SIGN": _NEVER}, (*LISTED, "hpo")),
    Rule("dictionary: written forms", 70,
         {"dictionary.written_forms.WrittenForms.find": lambda self, text: {}}, LISTED),
    Rule("dictionary: common words that are products", 20,
         {"dictionary.written_forms.is_common_word": lambda *_: False}, LISTED),
]  # fmt: skip
