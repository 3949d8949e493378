"""Every mention of a corpus reaches `spacy train`, or a message says why it does not."""

import gc
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
import spacy
from confection import Config
from spacy.language import Language
from spacy.tokens import DocBin, Span, SpanGroup
from spacy.util import registry
from srsly import msgpack_dumps, msgpack_loads
from tiny import DETECTOR, blank

from spacy_bioel.corpus import (
    create_corpus_v1,
    doc_to_text,
    docs_to_bin,
    read_docs,
    read_texts,
    text_to_doc,
)
from spacy_bioel.errors import BioelError
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.types import AnnotatedText, Mention

PUBTATOR = Path(__file__).parent / "data" / "six.PubTator.txt"
FIRST = ["Naloxone", "hypertension", "morphine", "Naloxone", "seizures", "Hypertension"]


@pytest.fixture
def nlp() -> Language:
    return blank()


@pytest.fixture
def spacy_file(nlp, tmp_path) -> Path:
    docs = [text_to_doc(nlp, text)[0] for text in read_texts(PUBTATOR, prefix="MESH")]
    docs_to_bin(docs).to_disk(tmp_path / "six.spacy")
    return tmp_path / "six.spacy"


def test_the_same_texts_from_both_files(spacy_file):
    texts = list(read_texts(PUBTATOR, prefix="MESH"))
    assert [text.id for text in texts] == ["101", "102", "103", "104", "105", "106"]
    assert list(read_texts(spacy_file)) == texts
    assert texts[3].mentions[0].ids == ("MESH:D001943", "MESH:D010051")
    assert texts[3].mentions[3].ids == ()


@pytest.mark.parametrize("tokenizer", ["spacy.Tokenizer.v1", "spacy-bioel.BioTokenizer.v1"])
def test_entities_of_a_spacy_file_are_kept(nlp, tmp_path, tokenizer):
    other = spacy.blank("en", config={"nlp": {"tokenizer": {"@tokenizers": tokenizer}}})
    text = "Dr Smith saw naloxone-induced seizures in Paris."
    both, nothing, unknown = (other.make_doc(text) for _ in range(3))
    place = text.index("seizures")
    both.spans["bioel_gold"] = [both.char_span(place, place + 8, "Disease", "MESH:D012640")]
    ents = [("Smith", "PERSON", "Q1"), ("Paris", "GPE", "")]
    starts = [text.index(words) for words, *_ in ents]
    both.ents = [
        both.char_span(start, start + 5, label, kb_id)
        for start, (_, label, kb_id) in zip(starts, ents, strict=True)
    ]
    nothing.set_ents([])  # annotated, without any entity
    DocBin(docs=[both, nothing, unknown]).to_disk(tmp_path / "both.spacy")
    first, second, third = create_corpus_v1(str(tmp_path / "both.spacy"))(nlp)
    assert [(e.text, e.label_, e.kb_id_) for e in first.reference.ents] == ents
    assert [s.text for s in first.reference.spans["bioel_gold"]] == ["seizures"]
    assert not first.predicted.ents and not first.predicted.spans.get("bioel")
    tags = [x.get_aligned_ner() for x in (first, second, third)]
    assert tags[0].count("U-PERSON") == 1 and "O" in tags[0]
    assert (set(tags[1]), set(tags[2])) == ({"O"}, {None})
    assert third.reference.has_annotation("ENT_IOB") is False


def test_spacys_ner_is_trained_beside_our_detector(nlp, tmp_path):
    doc = nlp.make_doc("Smith has seizures .")
    doc.spans["bioel_gold"] = [doc.char_span(10, 18, "Disease", "MESH:D012640")]
    doc.ents = [doc.char_span(0, 5, "PERSON")]
    DocBin(docs=[doc]).to_disk(tmp_path / "both.spacy")
    read = create_corpus_v1(str(tmp_path / "both.spacy"))
    nlp.add_pipe("ner")
    nlp.add_pipe("bioel_mentions", config=DETECTOR)
    optimizer = nlp.initialize(lambda: list(read(nlp)))
    assert nlp.get_pipe("ner").labels == ("PERSON",)
    for _ in range(40):
        losses = nlp.update(list(read(nlp)), sgd=optimizer)
    assert losses.keys() == {"ner", "bioel_mentions"}
    assert nlp.evaluate(list(read(nlp)))["ents_f"] == 1.0


@pytest.mark.parametrize("file", ["pubtator", "spacy"])
def test_examples(nlp, spacy_file, file):
    path, prefix = (PUBTATOR, "MESH") if file == "pubtator" else (spacy_file, "")
    examples = list(create_corpus_v1(str(path), prefix=prefix)(nlp))
    assert len(examples) == 6
    assert len(list(create_corpus_v1(str(path), limit=2)(nlp))) == 2
    gold = examples[0].reference.spans["bioel_gold"]
    assert [span.text for span in gold] == FIRST
    assert [span.kb_id_ for span in gold][:2] == ["MESH:D009270", "MESH:D006973"]
    # The predicted Docs have no gold annotation.
    assert all(not example.predicted.spans for example in examples)


@pytest.mark.parametrize(("widen", "n", "warnings"), [(False, 0, ["[W060]"]), (True, 1, [])])
def test_lost_mentions_are_reported(nlp, tmp_path, caplog, widen, n, warnings):
    path = tmp_path / "one.PubTator.txt"
    path.write_text("1|t|cystadenoma\n1|a|x\n1\t4\t11\tadenoma\tDisease\tD1\n", encoding="utf8")
    (example,) = create_corpus_v1(str(path), widen=widen)(nlp)
    assert len(example.reference.spans["bioel_gold"]) == n
    assert [r.message[:6] for r in caplog.records] == warnings


def test_mentions_of_a_doc(nlp):
    assert doc_to_text(nlp("plain")) == AnnotatedText("", "plain")
    text = AnnotatedText("7", "a b", (Mention(2, 3, "X", ("I:1", "I:2")), Mention(0, 3, "Y")))
    assert doc_to_text(text_to_doc(nlp, text)[0]) == text


@pytest.mark.parametrize("content", [None, b"", b"not a DocBin"], ids=["missing", "empty", "text"])
def test_a_file_that_is_not_a_docbin(tmp_path, nlp, content):
    path = tmp_path / "x.spacy"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BioelError, match=r"\[B060\].*x\.spacy"):
        list(read_texts(path))
    with pytest.raises(BioelError, match=r"\[B060\]"):
        list(read_docs(path, nlp.vocab))


def test_a_damaged_spacy_file_is_refused_wherever_it_shows(tmp_path):
    """Some damage shows when the file is opened, some when a Doc is made, some when it is read."""
    doc, _ = text_to_doc(spacy.blank("en"), AnnotatedText("1", "Flu", (Mention(0, 3, "D"),)))
    whole = msgpack_loads(zlib.decompress(docs_to_bin([doc]).to_bytes()))
    path = tmp_path / "x.spacy"
    damage = {"strings": [], "lengths": b"1", "span_groups": [b"x"], "tokens": b"1"}
    for key, value in damage.items():
        path.write_bytes(zlib.compress(msgpack_dumps({**whole, key: value})))
        with pytest.raises(BioelError, match=r"\[B060\].*x.spacy"):
            list(read_texts(path))
    assert gc.isenabled()


def test_documents_keep_the_labels_that_a_corpus_annotates(nlp, tmp_path):
    read = create_corpus_v1(str(PUBTATOR), annotates=["Disease", "Chemical"])
    first, *_ = (example.reference for example in read(nlp))
    assert first.spans["bioel_gold"].attrs["annotates"] == ["Disease", "Chemical"]
    docs_to_bin([first]).to_disk(tmp_path / "one.spacy")
    (text,) = read_texts(tmp_path / "one.spacy")
    assert text.annotates == ("Disease", "Chemical")
    write_texts_jsonl(tmp_path / "one.jsonl", [text, AnnotatedText("2", "none")])
    assert [t.annotates for t in read_texts(tmp_path / "one.jsonl")] == [text.annotates, ()]
    assert '"annotates"' not in (tmp_path / "one.jsonl").read_text("utf8").splitlines()[1]


def test_a_mention_of_a_label_that_is_not_annotated(nlp):
    read = create_corpus_v1(str(PUBTATOR), annotates=["Disease"])
    with pytest.raises(BioelError, match=r"\[B330\] .*six.*document 101.*'Chemical'"):
        list(read(nlp))


def test_the_mixture_of_the_page_in_a_config(nlp, tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "guides" / "mixed_corpora.md").read_text("utf8")
    (config,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    for name in ("diseases", "genes"):
        docs = [text_to_doc(nlp, AnnotatedText("1", "no mention"))[0]]
        docs_to_bin(docs).to_disk(tmp_path / f"{name}.spacy")
        config = config.replace(f'"{name}.spacy"', f'"{(tmp_path / name).as_posix()}.spacy"')
    read = registry.resolve(Config().from_str(config))["corpora"]["train"]
    groups = [example.reference.spans["bioel_gold"] for example in read(nlp)]
    assert [group.attrs["annotates"] for group in groups] == [["Disease", "Chemical"], ["Gene"]]


def docbin(path: Path, *documents: dict[str, tuple[int, str]]) -> Path:
    """Write documents of five words, each with a span of one word and its id, by place."""
    packed, nlp = DocBin(), spacy.blank("en")
    for places in documents:
        doc = nlp("Fever cough rash gout flu")
        for place, (word, kb_id) in places.items():
            spans = [Span(doc, word, word + 1, "D", kb_id=kb_id)] if word >= 0 else []
            if place == "ents":
                doc.ents = spans
            else:
                doc.spans[place] = spans
        packed.add(doc)
    packed.to_disk(path)
    return path


def ids_of(path: Path, **options: Any) -> list[tuple[str, ...]]:
    return [id_ for t in read_texts(path, **options) for m in t.mentions for id_ in (m.ids or [""])]


EMPTY, ONE, TWO = (-1, ""), (0, "X:1"), (1, "X:2")


@pytest.mark.parametrize(
    ("documents", "ids", "noted"),
    [
        ([{"ents": ONE}, {}, {"ents": TWO}], ["X:1", "X:2"], "doc.ents (2)"),
        ([{}, {"sc": ONE}], ["X:1"], "doc.spans['sc'] (1)"),
        ([{"ents": ONE, "bioel_gold": TWO}], ["X:2"], ""),
        ([{"bioel_gold": EMPTY, "ents": ONE}, {}, {"bioel_gold": TWO}], ["X:2"], ""),
        ([{"bioel_gold": EMPTY, "ents": ONE}], ["X:1"], "doc.ents (1)"),
        ([{"sc": ONE, "ents": ONE}, {"sc": TWO, "ents": TWO}], ["X:1", "X:2"], "doc.spans['sc']"),
        ([{"ents": (0, "")}, {"ents": (0, "NIL")}, {"ents": (0, "A:1|A:2")}],
         ["", "", "A:1", "A:2"], "doc.ents"),
        ([{}, {"bioel_gold": EMPTY}], [], ""),
    ],
)  # fmt: skip
def test_the_place_of_the_gold_mentions_is_detected(tmp_path, caplog, documents, ids, noted):
    path = docbin(tmp_path / "x.spacy", *documents)
    for _ in range(2):  # `spacy train` reads a corpus several times
        assert ids_of(path) == ids
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == bool(noted)
    assert all(line.startswith("[W335]") and noted in line for line in said)


@pytest.mark.parametrize(
    "documents",
    [
        [{"ents": ONE, "sc": TWO}],
        [{"ents": ONE, "sc": (0, "X:9")}],  # the same words with another id
        [{"ents": ONE}, {"sc": ONE}],  # one place in some documents, another in others
        [{"a": ONE, "b": TWO}],
        [{"sc": ONE, "ents": ONE}, {"sc": TWO}],
    ],
)
def test_several_places_that_differ_are_refused(tmp_path, documents):
    path = docbin(tmp_path / "x.spacy", {}, *documents)
    with pytest.raises(
        BioelError, match=r"\[B520\] .*x.spacy .*: [12] in doc.*; 1 in doc.*--spans-key"
    ):
        list(read_texts(path))
    for place in {place for document in documents for place in document}:
        spans_key = "doc.ents" if place == "ents" else place
        expected = [document[place][1] for document in documents if place in document]
        assert ids_of(path, spans_key=spans_key) == expected


@pytest.mark.parametrize("place", ["ents", "sc"])
def test_documents_with_mentions_only_in_another_place_are_refused(tmp_path, place):
    path = docbin(tmp_path / "x.spacy", {"bioel_gold": ONE}, {"bioel_gold": EMPTY}, {place: TWO})
    with pytest.raises(BioelError, match=r"\[B520\] .*'bioel_gold'.*document 3 lacks"):
        list(read_texts(path))
    assert ids_of(path, spans_key="bioel_gold") == ["X:1"]


def test_a_place_without_mentions_is_refused(tmp_path):
    path = docbin(tmp_path / "x.spacy", {"ents": ONE, "sc": EMPTY}, {"ents": TWO})
    for spans_key in ("sc", "SC", "bioel_gold"):
        with pytest.raises(BioelError, match=rf"\[B521\] .*'{spans_key}'\]; it has 2 in doc.ents"):
            list(read_texts(path, spans_key=spans_key))
    path = docbin(tmp_path / "x.spacy", {"sc": ONE})
    with pytest.raises(BioelError, match=r"\[B521\] .*in doc.ents; it has 1 in doc.spans\['sc'\]"):
        list(read_texts(path, spans_key="doc.ents"))
    with pytest.raises(BioelError, match=r"\[B522\] .*six.PubTator.txt has another format"):
        list(read_texts(PUBTATOR, spans_key="doc.ents"))


def test_examples_from_entities(nlp, tmp_path):
    for spans_key, kb_id in {"doc.ents": "MESH:1", "sc": "MESH:2"}.items():
        path = docbin(tmp_path / "x.spacy", {"ents": (0, "1"), "sc": (1, "2")})
        read = create_corpus_v1(str(path), spans_key=spans_key, prefix="MESH")
        (example,) = read(nlp)
        assert [s.kb_id_ for s in example.reference.spans["bioel_gold"]] == [kb_id]


def test_scores_of_a_filtered_group_are_ignored(tmp_path):
    doc = spacy.blank("en")("Fever cough")
    doc.spans["sc"] = SpanGroup(doc, attrs={"scores": [0.5, 0.9]}, spans=[doc[0:1]])
    DocBin(docs=[doc]).to_disk(tmp_path / "x.spacy")
    assert [m.probability for t in read_texts(tmp_path / "x.spacy") for m in t.mentions] == [1.0]


BIOC = {"documents": [{"id": "1", "infons": {}, "relations": [], "annotations": [], "passages": [
    {"offset": 0, "infons": {}, "text": "Fever", "sentences": [], "relations": [],
     "annotations": [{"id": "T1", "text": "Fever", "infons": {"identifier": "D003000", "type": "D"},
                      "locations": [{"offset": 0, "length": 5}]}]}]}]}  # fmt: skip
BIOC_XML = """<collection><document><id>1</id><passage><offset>0</offset><text>Fever</text>
<annotation id="1"><infon key="identifier">D003000</infon><location offset="0" length="5"/>
<text>Fever</text></annotation></passage></document></collection>"""
SPAN = {"start": 0, "end": 5, "label": "D"}
WITHOUT_PREFIX: dict[str, Any] = {
    "gold.txt": "1|t|Fever\n1|a|x\n1\t0\t5\tFever\tD\tD003000\n",
    "gold.xml": BIOC_XML,
    "gold.json": BIOC,
    "brat.ann": "T1\tD 0 5\tFever\nN1\tReference T1 D003000\tFever\n",
    "notes.ann": "T1\tD 0 5\tFever\n#1\tAnnotatorNotes T1\tD003000\n",
    "ours.jsonl": {"text": "Fever", "mentions": [SPAN | {"ids": ["D003000"]}]},
    "rows.jsonl": {"text": "Fever", "mentions": [[0, 5, "Fever", "D003000"]]},
    "linked.jsonl": {"text": "Fever", "links": [SPAN | {"id": "D003000", "ids": ["D003000"]}]},
    "prodigy.jsonl": {"text": "Fever", "spans": [SPAN | {"kb_id": "D003000"}], "answer": "accept"},
    "doccano.jsonl": {"text": "Fever", "entities": [
        {"id": 3, "start_offset": 0, "end_offset": 5, "label": "D", "kb_id": "D003000"}]},
    "ents.spacy": {"ents": (0, "D003000")},
    "group.spacy": {"sc": (0, "D003000")},
    "gold.spacy": {"bioel_gold": (0, "D003000")},
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_PREFIX)
def test_the_prefix_is_added_to_the_ids_of_every_format(tmp_path, name):
    path, content = tmp_path / name, WITHOUT_PREFIX[name]
    path.with_suffix(".txt").write_text("Fever")
    if path.suffix == ".spacy":
        docbin(path, content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert ids_of(path) == ["D003000"]
    assert ids_of(path, prefix="MESH") == ["MESH:D003000"]
