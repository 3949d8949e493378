from __future__ import annotations

import pytest

from spacy_bioel.text.variant_forms import find_variant_forms


@pytest.mark.parametrize(
    "form",
    [
        "T790M", "F508del", "c.35delG", "c.1521_1523delCTT", "c.1799T>A", "m.3243A>G", "p.R273H",
        "p.(Arg97ProfsTer23)", "Val66Met", "Arg506Gln", "IVS1-1G>A", "185delAG", "C677T", "rs6025",
        "W1282X", "R97fs", "c.1186_1187insGGCC", "ΔF508",
    ],
)  # fmt: skip
def test_a_variant_is_found_by_its_form(form: str) -> None:
    text = f"It had {form}, and ({form}) was new."
    places = find_variant_forms(text)
    assert [text[start:end] for start, end in places] == [form, form]


@pytest.mark.parametrize(
    "other",
    [
        "A549", "T47D", "H2O2", "S100A8", "S100A", "C57BL/6", "F344", "U2OS", "K562", "H1N1",
        "IL-6", "rs12", "SARS-CoV-2", "p53", "T790MX1", "fig.S100P",
    ],
)  # fmt: skip
def test_reagents_and_cell_lines_are_no_variants(other: str) -> None:
    assert find_variant_forms(f"It had {other} in it.") == []
