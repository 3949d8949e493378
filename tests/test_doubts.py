"""Unreliable development documents raise a doubt: few, seen in training, or alike but for names."""

from pathlib import Path

import doubts
import pytest

from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.types import AnnotatedText, Mention

pytestmark = pytest.mark.usefixtures("project")
NAMES = [f"blorb{chr(97 + i)}{chr(97 + i % 7)}" for i in range(26)]
TOPICS = "sleep diet work travel weather music sports family garden school".split()


def template(number: int, name: str) -> AnnotatedText:
    """One sentence, with a name in its place."""
    begin = "In this study we found that patients with "
    text = f"{begin}{name} had more visits to the clinic than others."
    mention = Mention(len(begin), len(begin) + len(name), "Device", (f"X:{number}",))
    return AnnotatedText(str(number), text, (mention,))


def written(number: int) -> AnnotatedText:
    """Sentences that no other document has."""
    words = [f"{TOPICS[number % 10]}{number}{i} and {TOPICS[i % 10]}{i * number}" for i in range(9)]
    return AnnotatedText(str(number), ". ".join(words))


def said(train: list[AnnotatedText], dev: list[AnnotatedText]) -> str:
    for split, texts in (("train", train), ("dev", dev)):
        folder = Path("assets/mine")
        folder.mkdir(parents=True, exist_ok=True)
        write_texts_jsonl(folder / f"{split}.jsonl", texts)
    return " / ".join(doubts.doubts("mine", "dev"))


def test_templates_are_few_and_alike():
    texts = [template(i, name) for i, name in enumerate(NAMES)]
    found = said(texts[:20], texts[20:])
    assert "20 documents of train and 6 of dev are few" in found
    assert "6 documents of dev differ from train documents mostly in their names, first 20" in found


def test_documents_that_differ_raise_no_doubt():
    texts = [written(i) for i in range(1, 121)]
    assert said(texts[:100], texts[100:]) == ""


def test_documents_of_dev_that_are_in_train():
    texts = [written(i) for i in range(1, 121)]
    found = said(texts, texts[:2])
    assert found.startswith("2 documents of dev are in train too, first 1")
