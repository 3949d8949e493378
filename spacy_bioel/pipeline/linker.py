from spacy.language import Language


@Language.factory("bioel_linker")
def make_linker(nlp: Language, name: str) -> object:
    raise NotImplementedError
