"""Every message a user can meet, in one place, each with a code.

Ranges: B00x text, B02x-B03x knowledge base, B04x models, B05x pipes, B06x corpus, B07x CLI,
B08x scoring, B10x-B13x file formats.
"""

from __future__ import annotations


class _Coded(type):
    """Puts the attribute's name before its text: Errors.B001 -> "[B001] ..."."""

    def __getattribute__(cls, name: str) -> str:
        value = super().__getattribute__(name)
        return value if name.startswith("__") else f"[{name}] {value}"


class BioelError(ValueError):
    """Bad input or a bad setting; the message says where, what was expected and what to do."""


class Errors(metaclass=_Coded):
    B020 = (
        "No knowledge base in {path}: expected a folder with meta.json. Check the path, or make "
        "one with bioel kb build."
    )
    B021 = (
        "The knowledge base in {path} has schema version {found}, this spacy-bioel reads "
        "{expected}. Build it again with bioel kb build, or install the version that made it."
    )
    B022 = (
        "The names in {path} were normalised by version {found} of normalize_name, this "
        "spacy-bioel has version {expected}: lookups would miss. Run bioel kb build again."
    )
    B023 = (
        "Column {file} of the knowledge base in {path} is missing, cut or foreign: expected "
        "{expected}; found {found}. Copy the whole folder again, or run bioel kb build again."
    )
    B024 = (
        "{file} in {path} is damaged: expected checksum {expected}, found {found}. Copy the whole "
        "folder again, or run bioel kb build again (bioel kb encode, if it is vectors.npy)."
    )
    B025 = (
        "These bytes are not a whole knowledge base: expected what KnowledgeBase.to_bytes() "
        "returned, found {found}. Save the pipeline again."
    )
    B026 = (
        "Record {number} has the {field} {found!r}: expected text without white space and '|', "
        "such as MESH:D003920. Correct the source."
    )
    B027 = (
        "Retired ids replace each other in a circle: {cycle}. Expected a chain that ends at a "
        "current id; correct the source."
    )
    B028 = (
        "Nothing left to build from {records} records: {by_type} concepts dropped by the type "
        "filter, {nameless} without a name. Types asked for: {asked}; the most frequent in the "
        "source: {seen}. Check the source and the types."
    )
    B029 = (
        "{path} exists and is not a knowledge base (it has no meta.json), so it is not "
        "overwritten. Choose another path, or remove it first."
    )
    B030 = "{file} in {path} is not readable ({error}). Copy the whole folder again, or remake it."
    B031 = (
        "The vectors in {path} were made by encoder {found}, this pipeline is {expected}; run "
        "bioel kb encode."
    )
    B032 = "The knowledge base in {path} has no vectors of its names; run bioel kb encode."
    B033 = (
        "vectors.npy in {path} is cut or foreign: expected {expected}; found {found}. Run bioel "
        "kb encode again."
    )
    B034 = (
        "The vectors in {path} belong to knowledge base {found}, this is {expected}; run bioel "
        "kb encode."
    )
    B035 = (
        "The encoder returned {found} for the names {first!r} ... {last!r}: expected finite "
        "numbers of shape {expected}. Check the encoder's weights and its width."
    )
    B036 = (
        "The index was asked with {found}, expected {expected}. Use the encoder that made the "
        "vectors, and one flag a name."
    )
    B037 = (
        "The knowledge base in {path} was replaced while a process was using it: expected "
        "{expected}, found {found}. Load the pipeline again."
    )
    B041 = "The weights do not fit the model: {reason}. Load them with the config they were saved with."
    B042 = "{path} is missing: the model folder is incomplete. Copy the whole folder again."
    B050 = "Cannot add the label {label!r}: the network was built for {labels}. Add labels before initialize."
    B051 = "No example has a gold mention in doc.spans[{key!r}]. Convert the corpus with `bioel convert`."
    B052 = "doc.spans[{key!r}] has a span without a link record: {text!r} at {place}. Run bioel_linker after whatever adds spans."
    B053 = "The pipe {name!r} is not trained. Train it with `spacy train`, or load a trained pipeline with spacy.load."
    B080 = (
        "{n_gold} gold documents and {n_predicted} lists of predicted links cannot be compared. "
        "Give one list of links per document, in the same order."
    )
    B081 = "There is no protocol '{name}'. Choose from: {known}."


class Warnings(metaclass=_Coded):
    pass
