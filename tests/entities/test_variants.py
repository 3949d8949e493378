"""Variants in texts: component forms, HGVS forms, rs numbers, and genes."""

import re

import pytest

from spacy_bioel.entities.variant_grammar import (
    _VARIANT_TOKENS,
    REWRITES,
    VARIANT_FORMS,
    _letter_of,
    find_variants,
    read_variant,
)
from spacy_bioel.entities.variants import VariantGenes, rs_numbers
from spacy_bioel.types import Candidate, Link


def _read(marked: str) -> tuple[str, str | None]:
    """Return component form and HGVS form of a mention: a text, or its part between bars."""
    before, mention, behind = marked.split("|") if "|" in marked else ("", marked, "")
    start = len(before)
    variant = read_variant(before + mention + behind, start, start + len(mention))
    return (variant.component, variant.hgvs) if variant else ("", None)


@pytest.mark.parametrize("form", VARIANT_FORMS, ids=lambda form: form.name)
def test_the_example_of_a_form_is_found_and_read(form):
    text = f"It had {form.example}, and ({form.example}) was new."
    starts = [text.index(form.example), text.rindex(form.example)]
    assert find_variants(text) == [(start, start + len(form.example)) for start in starts]
    letters = "".join(map(_letter_of, _VARIANT_TOKENS.finditer(form.example)))
    assert re.fullmatch(form.letters, letters)
    component, hgvs = _read(form.example)
    assert (hgvs or component) == form.reading


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.before)
def test_the_example_of_a_rewrite(rewrite):
    assert rewrite.pattern.sub(rewrite.replacement, rewrite.before) == rewrite.after


@pytest.mark.parametrize(
    ("texts", "hgvs"),
    [
        (
            "V600E;Val600Glu;p.V600E;p.(Val600Glu);Val 600 Glu;Val-600-Glu;p.[Val600Glu]",
            "p.Val600Glu",
        ),
        ("R506X;R506*;Arg506Stop;Arg506 -> Ter", "p.Arg506Ter"),
        ("arginine at position 573 by termination codon", "p.Arg573Ter"),
        ("aspartic acid to histidine substitution at amino acid position 401", "p.Asp401His"),
        ("stop codon for glutamine at codon 298;Q298X", "p.Gln298Ter"),
        ("codon 26, GAG-->GCG", "p.Glu26Ala"),
        ("p.A146T", "p.Ala146Thr"),
        ("H3K27M;K27M", "p.Lys27Met"),
        ("V600E/K", "p.Val600Glu^Lys"),
        ("codon 787 CAG/CAA;p.Gln787=", "p.Gln787="),
        ("R97fs", "p.Arg97fs"),
        ("p.Gln39fsX12", "p.Gln39fs"),
        ("p.Cys817Valfs X15;p.Cys817ValfsTer15;C817VfsX15;p.Cys817Valfs*15", "p.Cys817ValfsTer15"),
        ("F508del;ΔF508;delF508;p.Phe508del;Delta F508", "p.Phe508del"),
        ("E746_A750del;p.Glu746_Ala750del;p.E746_A750delELREA", "p.Glu746_Ala750del"),
        ("p.Asn771_Pro772insHis", "p.Asn771_Pro772insHis"),
        ("157delMTTTVP", "p.Met157_Pro162del"),
        ("c.1799T>A;c.1799 t-->a;1799T>A;T to A transversion at nucleotide 1799", "c.1799T>A"),
        ("c.35delG", "c.35del"),
        ("c.1706-1715del.ATCTCCTCAG", "c.1706_1715del"),
        ("c.76_77insT", "c.76_77insT"),
        ("c.429_452dup", "c.429_452dup"),
        ("c.88+2T>G;88 + 2T > G", "c.88+2T>G"),
        ("c.-21C/T;-21C>T;C-21T;C-to-T substitution at position -21", "c.-21C>T"),
        ("c.*21C>T", "c.*21C>T"),
        ("IVS2+1G>A;IVS2 + 1G > A;IVSII+1 (G-->A)", "c.IVS2+1G>A"),
        ("Ex2+860G>C", "c.Ex2+860G>C"),
        ("g.76_83delinsTG", "g.76_83delinsTG"),
        ("m.3243A>G;mitochondrial |A3243G|", "m.3243A>G"),
        # Bases or amino acids: the text around it decides.
        ("MTHFR |C677T|;|C677T| (A222V);the |C677T| polymorphism", "c.677C>T"),
        ("KRAS |G12C|;G12D, G12V and |G12C|;at codon 12 (|G12C|)", "p.Gly12Cys"),
        ("the MTHFR C677T and KRAS |G12C|", "p.Gly12Cys"),
        # Too little for HGVS, or not a change.
        ("G12C;rs113488022;exon 3 deletion;V600;;B2C;T4;n3İ;V٣E;H1N1;del(5q);CYP2D6", None),
        # Without a level, the first base of the numbering is unknown.
        ("35delG;nt 35G deletion;185delAG;76insT;IVS2-58_55insT", None),
        ("A1762T/G1896A;22-bp deletion;-308A;codon 104 G --> A;p.Met1?", None),
    ],
)
def test_hgvs(texts, hgvs):
    readings = {text: _read(text)[1] for text in texts.split(";")}
    assert readings == dict.fromkeys(readings, hgvs)


@pytest.mark.parametrize(
    ("text", "component"),
    [
        ("22-bp deletion", "c|DEL||22"),
        ("deletion of 37,410 bp", "c|DEL||37410"),
        ("650-kbp deletion", "c|DEL||650K"),
        ("four-base pair deletion", "c|DEL||4"),
        ("CCR5 |Delta32|", "c|DEL||32"),
        ("1494del6", "c|DEL|1494|6"),
        ("14 bp insertion/deletion", "c|INDEL||14"),
        ("(CCTTT)13", "c|DUP||CCTTT|13"),
        ("dup24bp", "c|DUP||24|"),
        ("A deletion in codon 242", "c|DEL|CODON242|A"),
        ("G to A", "c|SUB|G||A"),
        ("Glu-->Ala", "p|SUB|E||A"),
        ("-308 adenine", "c|Allele|A|-308"),
        ("Arg399", "p|Allele|R|399"),
        ("p.D157fsX158", "p|FS|D|157||158"),
        ("G12C", "|SUB|G|12|C"),
        ("185delAG", "c|DEL|185|AG"),
        ("2238-9del AG", "c|DEL|2238_2239|AG"),
        ("adenine (A) to guanine (G) substitution at position -670", "c|SUB|A|-670|G"),
    ],
)
def test_component_forms(text, component):
    assert _read(text)[0] == component


@pytest.mark.parametrize(
    "texts",
    [
        "T790M;F508del;F508DEL;ΔF508;W1282X;R97fs;A53T;V600E/K;H3K27M;S297Ffs*9;C677T;G-248A",
        "Val66Met;Arg506Gln;Lys 329 Glu;arginine 506 glutamine;Leu-33-Pro;Trp24Ter;Ser65fs",
        "c.1799T>A;c.35delG;c.1521_1523delCTT;c.88 +1G>A;c.1186_1187insGGCC;m.3243A>G;c.-9C/T",
        "p.R273H;p.(Arg97ProfsTer23);p.Lys9_Gly12del;p.Ala5_Ser6insPro;p.Gln787=;p.V44Ifs*7",
        "IVS1-1G>A;IVS4+1G>A;IVSII-745 (C-->G);Ex2+860G>C;185delAG;1100delC;5382insC;999del5",
        "rs6025;-592A/C;-592 C>A;-1562 (C/T);1858 C/T;677C>T;677TT;+49 A/G",
        "G to C substitution at position -174;C-to-T transition at nucleotide 524;A>T at codon 12",
        "Arg to Cys at codon 282;glycine to serine substitution at residue 10;leucine by proline",
        "codon 282, CGG-->TGG;codon 72 Arg/Pro;Ser>Leu;Gly-->Asp at position 12",
        "12-bp deletion;14 bp insertion/deletion;four base pair duplication at nucleotide 90",
        "deletion of 6 bp at position 1494;insertion of T at nucleotide 76;delAAG;CAG repeat",
        "stop codon at position 372;T allele at -31;(GT)21;Delta32",
    ],
)
def test_a_variant_is_found_by_its_form(texts):
    missed = []
    for form in texts.split(";"):
        text = f"It had {form}, and ({form}) was new."
        places = [text.index(form), text.rindex(form)]
        if find_variants(text) != [(start, start + len(form)) for start in places]:
            missed.append((form, [text[a:b] for a, b in find_variants(text)]))
    assert not missed


@pytest.mark.parametrize(
    "text",
    [
        "A549;T47D;H2O2;S100A8;S100A;C57BL/6;F344;U2OS;K562;H1N1;IL-6;rs12;rs0;SARS-CoV-2;p53",
        "T790MX1;fig.S100P;IL-17A;C4A;M6P;HEK-293T;T-47D;E2Fs;H3K27ac;H3K4me3;at -20C;delC19",
        "Deletion of ATG9;T-DNA insertion;10 A/B;serine to be at position 3;T1D to T2D;G-418 C",
        "phosphorylated at serine 473;codons 4 to 6;3 deletions;the A deletion;CYP2D6;G0/G1",
    ],
)
def test_similar_strings_are_not_variants(text):
    places = {t: find_variants(f"It had {t} in it.") for t in text.split(";")}
    assert places == dict.fromkeys(places, [])


def test_a_very_long_mention_is_not_a_variant():
    assert read_variant("9" * 6000 + "del") is None
    assert read_variant("ins" * 6000) is None


@pytest.mark.parametrize(
    ("text", "mentions", "expected"),
    [
        ("rs1801133 is", ["rs1801133"], ["rs1801133"]),
        ("V600E mutation (rs113488022); V600E", ["V600E", "V600E"], ["rs113488022"] * 2),
        ("rs11891426: T>G and T>G", ["T>G", "T>G"], ["rs11891426", ""]),  # unknown position
        ("rs0, rs12345678901 and hrs12", ["rs0", "rs12345678901", "hrs12"], ["", "", ""]),
        ("rs12, V600E", ["V600E"], [""]),
    ],
)
def test_rs_numbers(text, mentions, expected):
    places, end = [], 0
    for mention in mentions:
        start = text.index(mention, end)
        end = start + len(mention)
        places.append((start, end))
    assert rs_numbers(text, places) == expected


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


def test_a_gene_without_a_link_is_none() -> None:
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
    text_of_tert = "hTERT C228T; IRS1 and TERT"
    of_tert = [Link(13, 17, "Gene", ("G:2",)), Link(22, 26, "Gene", ("G:4",))]
    assert VariantGenes(text_of_tert, [Link(0, 0, "Gene"), *of_tert]).of(6, 11) == "G:4"
    similar = (Candidate("G:1", 0.1, "DGAT", "ngram"),)  # not its name
    links[0] = Link(0, 5, "Gene", (), similar)
    assert gene(6, "K232A") == "G:2"
