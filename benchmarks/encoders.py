"""Encoders that are compared for speed, and names to encode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModel, BertConfig, BertModel

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.models.name_encoder import (
    NameEncoder,
    encode_names,
    get_network,
    infer_by_torch,
    inference_of,
)
from spacy_bioel.nn.encoders import NameTransformer
from spacy_bioel.text.normalize import normalize_name

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
_BATCH = 64


def sample_names(kb: KnowledgeBase, n: int) -> list[str]:
    """Normalised names of all of a knowledge base, drawn with seed 0, in no order."""
    rows = np.random.default_rng(0).choice(kb.n_names, min(n, kb.n_names), replace=False)
    return [normalize_name(name) for name in kb.names.take(rows)]


class Names:
    """Our encoder. fast (bool): As it links; else the network that is trained."""

    def __init__(self, model: NameEncoder, *, fast: bool) -> None:
        self.model = model
        network = get_network(model)
        by_torch = infer_by_torch(network, next(network.parameters()).device)
        self.infer = inference_of(model) if fast else by_torch

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        return encode_names(self.model, names, infer=self.infer)


class Padded:
    """A transformer as people run it: batches in the order of the names, padded, masked."""

    def __init__(self, backbone: Any, tokenizer: Tokenizer) -> None:
        self.backbone = backbone.eval()
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.enable_truncation(25)
        self.tokenizer.enable_padding()

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        found = []
        with torch.inference_mode():
            for start in range(0, len(names), _BATCH):
                pieces = self.tokenizer.encode_batch(list(names[start : start + _BATCH]))
                ids = torch.tensor([piece.ids for piece in pieces])
                mask = torch.tensor([piece.attention_mask for piece in pieces])
                hidden = self.backbone(input_ids=ids, attention_mask=mask)[0]
                found.append(hidden[:, 0].float().numpy())
        return unit(np.concatenate(found))


class Packed:
    """A transformer that is given names of one length together, so that nothing is padded."""

    def __init__(self, backbone: Any, tokenizer: Tokenizer) -> None:
        self.network = NameTransformer(backbone.eval(), pooling="cls")
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.enable_truncation(25)
        self.tokenizer.no_padding()

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        pieces = [piece.ids for piece in self.tokenizer.encode_batch_fast(list(names))]
        ids = torch.tensor([piece for name in pieces for piece in name])
        with torch.inference_mode():
            vectors = self.network(ids, torch.tensor([len(name) for name in pieces]))
        return unit(vectors.float().numpy())


def bert_base(tokenizer: Tokenizer) -> Any:
    """Encoder of the shape of BERT-base, weights drawn at random, for the same speed."""
    torch.manual_seed(0)
    return BertModel(BertConfig(vocab_size=tokenizer.get_vocab_size()), add_pooling_layer=False)


def int8(backbone: Any) -> Any:
    """Linear layers with weights and activations of 8 bits, by torch's dynamic quantisation."""
    return torch.ao.quantization.quantize_dynamic(backbone, {torch.nn.Linear}, dtype=torch.qint8)


def load_backbone(checkpoint: Path) -> tuple[Any, Tokenizer]:
    backbone = AutoModel.from_pretrained(checkpoint, add_pooling_layer=False)
    return backbone, Tokenizer.from_file(str(checkpoint / "tokenizer.json"))


def unit(vectors: NDArray) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
