"""Texts <-> Docs, and the corpus reader for `spacy train`."""

import gc
import re
import zlib
from pathlib import Path

import pytest
import spacy
from confection import Config
from spacy.language import Language
from spacy.util import registry
from srsly import msgpack_dumps, msgpack_loads

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
    return spacy.blank(
        "en", config={"nlp": {"tokenizer": {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}}}
    )


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


@pytest.mark.parametrize("file", ["pubtator", "spacy"])
def test_examples(nlp, spacy_file, file):
    path, prefix = (PUBTATOR, "MESH") if file == "pubtator" else (spacy_file, "")
    examples = list(create_corpus_v1(str(path), prefix=prefix)(nlp))
    assert len(examples) == 6
    assert len(list(create_corpus_v1(str(path), limit=2)(nlp))) == 2
    gold = examples[0].reference.spans["bioel_gold"]
    assert [span.text for span in gold] == FIRST
    assert [span.kb_id_ for span in gold][:2] == ["MESH:D009270", "MESH:D006973"]
    # The prediction side knows nothing of the gold.
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
def test_a_file_that_is_no_docbin(tmp_path, nlp, content):
    path = tmp_path / "x.spacy"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BioelError, match=r"\[B060\].*x\.spacy"):
        list(read_texts(path))
    with pytest.raises(BioelError, match=r"\[B060\]"):
        list(read_docs(path, nlp.vocab))


def test_a_damaged_spacy_file_is_refused_wherever_it_shows(tmp_path):
    """Some damage shows when the file is opened, some when a doc is made, some when it is read."""
    doc, _ = text_to_doc(spacy.blank("en"), AnnotatedText("1", "Flu", (Mention(0, 3, "D"),)))
    whole = msgpack_loads(zlib.decompress(docs_to_bin([doc]).to_bytes()))
    path = tmp_path / "x.spacy"
    damage = {"strings": [], "lengths": b"1", "span_groups": [b"x"], "tokens": b"1"}
    for key, value in damage.items():
        path.write_bytes(zlib.compress(msgpack_dumps({**whole, key: value})))
        with pytest.raises(BioelError, match=r"\[B060\].*x.spacy"):
            list(read_texts(path))
    assert gc.isenabled()


def test_what_a_corpus_annotates_goes_with_its_documents(nlp, tmp_path):
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
