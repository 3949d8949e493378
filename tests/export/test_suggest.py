"""Texts are suggested for annotation by what the pipeline doubts and by what is new in them."""

import re

import pytest
from tiny import DETECTOR, blank, linking_nlp, train

from spacy_bioel.export import suggest
from spacy_bioel.export.rows import LinkedText, link_texts
from spacy_bioel.export.suggest import (
    choose_texts,
    link_doubt,
    link_with_doubts,
)
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import AnnotatedText, Candidate, Concept, Link, Mention

WORDS = "liver kidney heart lung spleen colon nerve joint muscle bone skin eye ear nose".split()


def text_of(id: str, words: str, *doubts: tuple[str, float], ids: tuple[str, ...] = ()):
    """A linked text in which the pipeline doubts some words; the first has the ids."""
    links = []
    for word, doubt in doubts:
        start = words.index(word)
        links.append(Link(start, start + len(word), "Disease", ids, facts={"doubt": doubt}))
        ids = ()
    return LinkedText(id, words, tuple(links))


def order_of(texts, annotated=()) -> list[str]:
    return [text.id for text in choose_texts(texts, annotated)]


def test_doubted_texts_come_first():
    sure = text_of("sure", "Acute gout was treated again", ("gout", 0.0))
    unsure = text_of("unsure", "Severe gout was cured at last", ("gout", 0.9))
    nearly = text_of("nearly", "Mild gout had come once more", ("gout", 0.4))
    assert order_of([sure, nearly, unsure]) == ["unsure", "nearly", "sure"]


def test_a_doubt_counts_less_once_a_text_with_it_is_chosen():
    first = text_of("first", "Severe gout was cured at last", ("gout", 0.9))
    again = text_of("again", "Acute gout was treated twice there", ("gout", 0.9))
    other = text_of("other", "Mild rickets had come once more", ("rickets", 0.6))
    assert order_of([first, again, other]) == ["first", "other", "again"]


def test_new_concepts_and_new_words_come_first():
    known = text_of("known", "Severe gout was cured at last", ("gout", 0.0), ids=("X:1",))
    same = text_of("same", "The podagra of a man healed", ("podagra", 0.0), ids=("X:1",))
    new = text_of("new", "Bad rickets of one boy ended", ("rickets", 0.0), ids=("X:2",))
    assert order_of([known, same, new])[:2] == ["known", "new"]
    known = [AnnotatedText("", "Severe gout was cured at last")]
    common, rare = text_of("common", "At last gout was severe"), text_of("rare", "Lupus nephritis")
    assert order_of([common, rare], known) == ["rare", "common"]


@pytest.mark.parametrize(
    "copy",
    [
        "A woman of 61 years with severe gout was cured by colchicine within five days of rest",
        "A WOMAN of 62 years with severe gout was cured by colchicine within five days of rest.",
        "A woman of 61 years with severe gout was cured by colchicine within five days of sleep",
    ],
)
def test_near_duplicates_are_left_out(copy):
    text = "A woman of 61 years with severe gout was cured by colchicine within five days of rest"
    texts = [text_of("a", text, ("gout", 0.9)), text_of("b", copy, ("gout", 0.9))]
    assert len(order_of(texts)) == 1
    other = text_of("c", "A woman of 61 years was sent home with nothing but advice on her diet")
    assert len(order_of([*texts, other])) == 2


def test_short_texts_are_compared_as_a_whole_and_blank_ones_are_left_out():
    words = ["gout", "Gout.", "", " \n", "lupus"]
    texts = [text_of(str(i), text) for i, text in enumerate(words)]
    assert sorted(order_of(texts)) == ["0", "4"]


def test_what_is_in_annotated_texts_is_not_new():
    texts = [text_of(word, f"The {word} of 9 men hurt", (word, 0.5)) for word in WORDS]
    assert len(order_of(texts)) == len(WORDS)
    liver = AnnotatedText("", "The liver of 8 men hurt", (Mention(4, 9, "Organ"),))
    assert "liver" not in order_of(texts, [liver])  # the same apart from a number
    lung = AnnotatedText("", "My lung aches", (Mention(3, 7, "Disease"),))
    assert order_of(texts, [lung])[-1] == "lung"


def test_the_order_depends_on_neither_chance_nor_the_order_of_equal_texts():
    doubts = [(word, i % 5 / 5) for i, word in enumerate(WORDS)]
    texts = [text_of(word, f"The {word} hurt him", (word, doubt)) for word, doubt in doubts]
    assert order_of(texts) == order_of(texts)
    assert order_of(texts)[:2] == ["spleen", "bone"]  # doubt 0.8, in the order of the input


def test_work_is_in_proportion_to_the_texts(monkeypatch):
    of, calls = suggest._aspects, []
    monkeypatch.setattr(suggest, "_aspects", lambda *args: calls.append(1) or of(*args))
    for n in (100, 3000):
        calls.clear()
        words = [f"{WORDS[i % 14]} x{i * i % 97} {WORDS[i % 11]} {hex(i)}" for i in range(n)]
        words = [re.sub("[0-9]", lambda digit: "ghijklmnop"[int(digit[0])], x) for x in words]
        texts = [text_of(str(i), text, (text[:4], i % 7 / 7)) for i, text in enumerate(words)]
        assert len(order_of(texts)) > n / 2
        assert len(calls) < 12 * n


@pytest.mark.parametrize(
    ("scores", "low", "high"),
    [
        ((), 0.0, 0.0),
        ((1.0,), 0.0, 0.0),
        ((0.99, 0.01), 0.0, 0.05),
        ((0.48, 0.47), 0.9, 1.0),  # tied
        ((0.16, 0.01), 0.9, 1.0),  # barely linked
        ((0.14, 0.13), 0.9, 1.0),  # nearly linked
        ((0.01, 0.01), 0.0, 0.1),  # tied, but NIL anyway
        ((0.95, 0.95), 0.0, 0.1),  # of two knowledge bases, or the parts of a composite mention
    ],
)
def test_doubts_about_a_link(scores, low, high):
    candidates = [Candidate(f"X:{i}", score) for i, score in enumerate(scores)]
    assert low <= link_doubt(candidates, 0.15) <= high
    assert 0 <= link_doubt(candidates, 0.0) <= 1 and 0 <= link_doubt(candidates, 1.0) <= 1


@pytest.fixture(scope="module")
def detecting():
    """A detector that has seen a single document."""
    nlp = blank()
    nlp.add_pipe("bioel_mentions", config=DETECTOR)
    text = "Gout and fever were seen."
    mentions = (Mention(0, 4, "Disease"), Mention(9, 14, "Disease"))
    train(nlp, [AnnotatedText("1", text, mentions)], updates=12)
    return nlp


def test_spans_below_the_threshold_are_doubts_but_not_mentions(detecting):
    detector = detecting.get_pipe("bioel_mentions")
    texts = [("Gout and fever were seen.", "1"), ("Gout or lupus and rickets.", "2")]
    docs = [detecting.make_doc(text) for text, _ in texts]
    probabilities = [p for spans in detector.score_spans(docs) for *_, p in spans]
    # Just above all probabilities, the likeliest span is nearly a mention; just below, barely one.
    for margin, kind in ((1e-5, "nearly"), (-1e-5, "doubt")):
        threshold = max(probabilities) + margin
        detector.cfg["threshold"] = threshold
        linked = list(link_texts(detecting, texts, link_all=link_with_doubts))
        for text, plain in zip(linked, link_texts(detecting, texts), strict=True):
            found = [x for x in text.links if "doubt" in x.facts]
            assert [(x.start, x.end, x.label) for x in found] == [
                (x.start, x.end, x.label) for x in plain.links
            ]
            assert all(0 <= value <= 1 for x in text.links for value in x.facts.values())
        doubts = [x.facts for text in linked for x in text.links]
        assert len(doubts) >= len(probabilities)
        # Scores have four digits, which matter near 1.
        assert max(facts.get(kind, 0.0) for facts in doubts) > 0.8


def test_links_of_other_mentions_have_doubts_too(tmp_path):
    build_kb([Concept("X:1", ("Gout",)), Concept("X:2", ("Gout",))], tmp_path / "kb")
    nlp = linking_nlp(tmp_path / "kb", ["Gout", "Nothing"], model={"dim": 16})
    (linked,) = link_texts(nlp, [("Gout and Nothing", "1")], link_all=link_with_doubts)
    gout, nothing = linked.links
    assert gout.facts["doubt"] > 0.9 > nothing.facts["doubt"]
