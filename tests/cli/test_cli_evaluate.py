"""`bioel evaluate` counts what its protocols define, and warns of gold that cannot count."""

from dataclasses import replace

import pytest
import spacy
import srsly
from commands import Bioel
from spacy.cli.evaluate import evaluate
from spacy.tokens import DocBin

from spacy_bioel.cli.corpora import convert
from spacy_bioel.files import fingerprint_folder
from spacy_bioel.linking.given import link_gold_mentions
from spacy_bioel.loading import find_linker
from spacy_bioel.plugins.evaluation.run import link_bare_texts
from spacy_bioel.types import AnnotatedText, Mention


def scores(bioel: Bioel, *argv: object) -> dict[tuple[str, str, str], dict]:
    rows = bioel("evaluate", *argv, "--prefix", "MESH", "--json", "-").json
    return {(row["protocol"], row["metric"], row["label"]): row for row in rows}


@pytest.mark.parametrize(
    ("options", "accuracy", "noted"),
    [((), 100.0, "doc.ents"), (("--ents",), 100.0, ""), (("--spans-key", "sc"), 0.0, "")],
)
def test_gold_in_any_place_of_a_docbin(bioel, model, tmp_path, caplog, options, accuracy, noted):
    doc = spacy.blank("en")("Narcan or clonidine")
    doc.ents = [doc.char_span(0, 6, label="D", kb_id="D009270")]
    if "--spans-key" in options:  # with another id
        doc.spans["sc"] = [doc.char_span(0, 6, label="D", kb_id="D003000")]
    DocBin(docs=[doc]).to_disk(tmp_path / "gold.spacy")
    arguments = (model, tmp_path / "gold.spacy")
    rows = scores(bioel, *arguments, "--protocol", "gold", *options)
    assert rows["gold", "accuracy@1", ""]["value"] == accuracy
    assert [noted in r.getMessage() for r in caplog.records] == [True] * bool(noted)
    tuned = bioel("tune", *arguments, tmp_path / "out", "--prefix", "MESH", *options)
    assert "1 mentions in 1 documents" in tuned.err


def test_gold_never_reaches_the_pipeline_in_end_to_end(model):
    nlp = spacy.load(model)
    linker = find_linker(nlp)
    text = "Narcan or a kind of pressure"
    bare = [AnnotatedText("1", text)]
    annotated = [AnnotatedText("1", text, (Mention(20, 28, "D", ("MESH:D006973",)),))]
    expected = list(link_bare_texts(nlp, linker, bare))
    assert [(x.start, x.end) for x in expected[0]] == [(0, 6)]
    assert list(link_bare_texts(nlp, linker, annotated)) == expected


def test_the_linker_is_given_places_and_labels_but_no_ids(model):
    nlp = spacy.load(model)
    linker = find_linker(nlp)
    mentions = Mention(0, 6, "D", ("MESH:D009270",)), Mention(10, 19, "D", ("X:1", "X:2"))
    with_ids = AnnotatedText("1", "Narcan or clonidine", mentions)
    without = replace(with_ids, mentions=tuple(replace(m, ids=()) for m in mentions))
    found = list(link_gold_mentions(nlp, linker, [without]))
    assert [(x.start, x.end, x.label, x.ids) for x in found[0]] == [
        (0, 6, "D", ("MESH:D009270",)),
        (10, 19, "D", ("MESH:D003000",)),
    ]
    assert found == list(link_gold_mentions(nlp, linker, [with_ids]))
    assert linker.cfg["mentions"] == "dictionary"  # its own choice, again


def test_fingerprint_follows_names_and_contents(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1")
    first = fingerprint_folder(tmp_path)
    assert fingerprint_folder(tmp_path) == first
    (tmp_path / "a" / "x").write_text("2")
    second = fingerprint_folder(tmp_path)
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    assert len({first, second, fingerprint_folder(tmp_path)}) == 3


def test_a_knowledge_base_only_is_compared_with_the_pipeline(bioel, model, corpus, tmp_path):
    """A pipeline that finds one of four mentions is worse than its names, and that is said."""
    nlp = spacy.load(model)
    nlp.add_pipe("entity_ruler", first=True).add_patterns(  # type: ignore[attr-defined]
        [{"label": "Chemical", "pattern": "Narcan"}]
    )
    find_linker(nlp).cfg["mentions"] = "ents"
    nlp.to_disk(tmp_path / "ruler")
    options = ("--protocol", "strict", "--protocol", "gold", "--names-alone")
    rows = scores(bioel, tmp_path / "ruler", corpus, *options)
    assert rows["end_to_end", "recall", ""]["value"] == pytest.approx(20.0)
    assert rows["end_to_end", "recall", ""]["names_alone"] == pytest.approx(80.0)
    assert "names_alone" not in rows["gold", "accuracy@1", ""]
    argv = ("evaluate", tmp_path / "ruler", corpus, "--prefix", "MESH", *options)
    done = bioel(*argv)
    assert "knowledge base only" in done.words and "[W455]" in done.err
    assert "end_to_end f1 88.9, the pipeline 33.3" in done.err
    assert "[W455]" not in bioel("evaluate", model, *argv[2:]).err


def test_our_scores_in_spacy_evaluate(model, corpus, tmp_path, capsys):
    dev, out = tmp_path / "dev.spacy", tmp_path / "out.json"
    convert(corpus, dev, prefix="MESH")
    capsys.readouterr()
    evaluate(str(model), dev, silent=False, spans_key="bioel_link", output=out)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    # Four of five linked gold mentions, as `bioel evaluate` counts them.
    assert ["SPAN", "P", "100.00"] in printed
    assert ["SPAN", "R", "80.00"] in printed
    assert ["SPAN", "F", "88.89"] in printed
    # Names of the knowledge base have its types as labels.
    assert ["Chemical", "0.00", "0.00", "0.00"] in printed
    assert srsly.read_json(out)["spans_bioel_link_r"] == pytest.approx(0.8)
    evaluate(str(model), dev, output=out, per_component=True)
    scores = srsly.read_json(out)["bioel_linker"]
    assert (scores["bioel_link_r"], scores["bioel_link_acc"]) == (pytest.approx(0.8), 1.0)
