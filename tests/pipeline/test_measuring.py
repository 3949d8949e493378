"""Linking gold mentions: which pipes are run for token vectors."""

import spacy
from tiny import LINKER, blank

from spacy_bioel.evaluation.run import link_given
from spacy_bioel.pipe import with_token_vectors
from spacy_bioel.types import AnnotatedText, Mention


def test_token_vectors_are_made_for_listeners_only(kb_folder):
    nlp = blank()
    nlp.add_pipe("tok2vec")  # not initialized: it would fail
    linker = nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb_folder)})
    text = AnnotatedText("1", "aspirin", (Mention(0, 7, "Drug", ()),))
    ((link,),) = link_given(nlp, linker, [text])
    assert link.ids == ("MESH:D001241",)


def test_vectors_by_the_pipes_that_give_them_alone():
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec").model.initialize()
    nlp.add_pipe("bioel_mentions")  # untrained: it would refuse
    docs = [nlp.make_doc("heart attack"), nlp.make_doc("")]
    assert [doc.tensor.shape for doc in with_token_vectors(nlp, docs)] == [(2, 96), (0, 96)]
