"""A custom rescorer, which only its architecture has to name."""

import numpy as np
import spacy
from thinc.api import Model
from tiny import LINKER, with_entity, with_linker

from spacy_bioel.doc import get_links
from spacy_bioel.kb.build import build_kb
from spacy_bioel.linking.rescoring import Rescorer
from spacy_bioel.plugins.contextual.rescoring import (
    CONTEXTUAL_FEATURES,
    contextual_model,
    rescore_pairs,
)
from spacy_bioel.types import Concept


class PreferMentioned(Rescorer):
    """Rescorer that prefers concepts whose preferred name occurs in the document."""

    features = CONTEXTUAL_FEATURES
    is_ready = True
    proposes = False

    def score(self, generator, mentions, given):
        def score(mention, concept):
            docs = [mentions.spans[i].doc.text for i in mention]
            names = [generator.kb.preferred_name(row) for row in concept.tolist()]
            return np.array([float(n in text) for n, text in zip(names, docs, strict=True)])

        return rescore_pairs(generator.kb, given, score, temperature=0.1)


@spacy.registry.architectures("test.Mentioned.v1")
def build(names: Model) -> Model:
    return contextual_model("mentioned", PreferMentioned, {"names": names})


def test_a_custom_rescorer(tmp_path):
    build_kb([Concept("X:1", ("flu", "cold")), Concept("X:2", ("low heat", "cold"))], tmp_path)
    names = {"@architectures": "spacy-bioel.ResCNN.v1"} | LINKER["model"]
    nlp = with_linker(
        spacy.blank("en"),
        tmp_path,
        {"@architectures": "test.Mentioned.v1", "names": names},
        mentions="ents",
        evidence={"dense": False},
    )
    linker = nlp.get_pipe("bioel_linker")
    for text, id in (("Is it flu, this cold?", "X:1"), ("The cold is low heat.", "X:2")):
        doc = linker(with_entity(nlp, text, "cold"))
        assert [link.ids for link in get_links(doc)] == [(id,)]
        assert get_links(doc)[0].candidates[0].evidence.endswith("contextual")
