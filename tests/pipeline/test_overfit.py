"""Both pipes, trained on six documents, saved and loaded: literal links."""

import pytest
from spacy.training import Example
from tiny import links

from spacy_bioel.corpus import text_to_doc

ODD_TEXTS = ["", "  \n ", "Headache", "Nothing here.", "🙂👩‍⚕️ cafe\u0301 🙂", "+", "a\u0301"]


@pytest.fixture(scope="module")
def expected(texts, kb) -> dict[str, list[tuple[str, str]]]:
    """The gold links of each document; one gold id is a retired one."""
    return {
        text.id: [
            (text.text[m.start : m.end], "|".join(map(kb.canonical, m.ids)))
            for m in sorted(text.mentions, key=lambda m: m.start)
        ]
        for text in texts
    }


def test_links_of_the_training_documents(trained, texts, expected):
    assert expected["101"][:2] == [("Naloxone", "MESH:D009270"), ("hypertension", "MESH:D006973")]
    assert ("hepatotoxicity", "MESH:D056486") in expected["105"]
    found = {text.id: links(trained(text.text)) for text in texts}
    # A composite is found and kept beside the mention inside it; the linker gives it one part.
    nested = found.pop("104")
    assert [words for words, _ in nested] == [
        "Breast and ovarian cancer", "ovarian cancer", "Lung cancer", "Odd syndrome",
    ]  # fmt: skip
    assert nested[1:] == [
        ("ovarian cancer", "MESH:D010051"),
        ("Lung cancer", "MESH:D008175"),
        ("Odd syndrome", ""),
    ]
    assert found == {id: links for id, links in expected.items() if id != "104"}


def test_labels_scores_and_extensions(trained, texts):
    doc = trained(texts[0].text)
    group = doc.spans["bioel"]
    assert [span.label_ for span in group] == [
        "Chemical", "Disease", "Chemical", "Chemical", "Disease", "Disease",
    ]  # fmt: skip
    assert len(group.attrs["scores"]) == 6 and min(group.attrs["scores"]) > 0.5
    assert group[0].kb_id_ == group[0]._.cui == "MESH:D009270"
    best = group[0]._.candidates[0]
    assert (best.id, best.name, best.evidence) == (
        "MESH:D009270", "Naloxone", "exact+alias_table",
    )  # fmt: skip
    assert best.score > 0.95


def test_gold_in_the_input_changes_nothing(trained, texts):
    """Pitfall P4: predictions come from the text alone."""
    for text in texts:
        doc, alignment = text_to_doc(trained, text)
        assert len(doc.spans["bioel_gold"]) == alignment.n > 0
        assert links(trained(doc)) == links(trained(text.text))


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts(trained, text):
    doc = trained(text)
    assert doc.text == text
    assert links(doc) == ([("Headache", "MESH:D006261")] if text == "Headache" else [])
    assert "bioel" in doc.spans


def test_offsets_after_emoji_and_combining_characters(trained):
    doc = trained("🙂👩‍⚕️ cafe\u0301! A heart attack after adrenaline 🙂.")
    assert links(doc) == [("heart attack", "MESH:D009203"), ("adrenaline", "MESH:D004837")]


def test_scores(trained, texts):
    references = [text_to_doc(trained, text)[0] for text in texts]
    scores = trained.evaluate([Example(trained.make_doc(doc.text), doc) for doc in references])
    assert scores["bioel_mention_f"] == 1.0
    # One gold id is a retired one: it counts as the id that replaced it.
    assert scores["bioel_link_f"] == scores["bioel_link_acc"] == 1.0


def test_two_processes(trained, texts, start_method):
    inputs = [text.text for text in texts] + ODD_TEXTS
    docs = trained.pipe(inputs, n_process=2, batch_size=3)
    assert [*map(links, docs)] == [*map(links, trained.pipe(inputs))]


def test_a_long_document(trained, texts, expected):
    import resource

    text = " ".join([texts[0].text] * 800)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    doc = trained(text)
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert len(doc) == 20_000
    assert len(doc.spans["bioel"]) >= 800 * 6
    assert links(doc)[:6] == expected["101"]
    assert used < 500  # megabytes
