"""Encode names as vectors, and save and load all models that use word pieces.

An architecture is a network with word pieces and a `NetworkKind`, which defines how to create,
store and run the network. ResCNN is defined here; its word piece embeddings are frozen, and come
from a BERT checkpoint or are computed from the names. Transformers, cross-encoders and
encoder-decoders are stored in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save
from thinc.api import Model
from thinc.types import Floats2d
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.inference import NumpyResCNN, rescnn_shapes
from spacy_bioel.models.torch_io import (
    device_of,
    is_on_gpu,
    network_of,
    reading_part,
    set_layer,
    to_tensors,
    torch_layer,
    weights_from_bytes,
    weights_of,
    weights_to_bytes,
)
from spacy_bioel.models.vocabulary import (
    EmbeddingTables,
    load_huggingface,
    make_vocabulary,
    n_pieces,
)
from spacy_bioel.parallel import in_halves, one_thread_each
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.types import FloatArray, IntArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class Pieces(NamedTuple):
    """Variable-length rows of word pieces, stored as two arrays.

    flat (IntArray): Pieces of all rows, concatenated. Shape (n_pieces,).
    lengths (IntArray): Number of pieces in each row. Shape (n_rows,).
    """

    flat: IntArray
    lengths: IntArray

    @classmethod
    def of_rows(cls, rows: Iterable[Sequence[int]]) -> Pieces:
        rows = list(rows)
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        return cls(np.array([piece for row in rows for piece in row], dtype=np.int64), lengths)


NameEncoder = Model[Sequence[str], Floats2d]
EncoderFiles = dict[str, Callable[[], bytes]]
# Encodes names, each a list of word piece ids, as vectors. Shape (n_names, dim).
Infer = Callable[[Sequence[list[int]]], FloatArray]

_SETTINGS_FILE, _TOKENIZER_FILE = "encoder.json", "tokenizer.json"
_WEIGHTS_FILE, _EMBEDDINGS_FILE = "model.safetensors", "embeddings.safetensors"
# Batches are this many times larger on a GPU; `infer_by_torch` halves batches that do not fit.
_GPU_BATCH_FACTOR = 32


@dataclass(frozen=True)
class EncoderSource:
    """Sources for a vocabulary and a network; an architecture may use only some of them.

    more_names (Sequence[str]): Normalised names that the KB lacks, e.g. training mentions.
    embeddings (str | None): A Hugging Face model folder.
    vocabulary, width (int): Number of word pieces and size of embeddings computed from names.
    read_texts (Callable): Reads the normalised training documents, which few architectures need.
    """

    kb: KnowledgeBase
    more_names: Sequence[str]
    embeddings: str | None
    vocabulary: int
    width: int
    read_texts: Callable[[], Iterable[str]] = tuple

    @property
    def names(self) -> list[str]:
        """Normalised knowledge base names, followed by the additional names."""
        return [*normalize_names(list(self.kb.names)), *self.more_names]


def infer_by_torch(network: Callable[[Tensor, Tensor], Tensor], device: torch.device) -> Infer:
    """Return a function that runs a torch network, halving batches that are too large for a GPU."""
    import torch

    @torch.inference_mode()
    def infer(names: Sequence[list[int]]) -> FloatArray:
        return network(*to_tensors(Pieces.of_rows(names), device)).float().cpu().numpy()

    return lambda names: np.concatenate(in_halves(infer, names))


def _torch_inference(model: NameEncoder) -> Infer:
    return infer_by_torch(get_network(model), device_of(model.get_ref("network")))


@dataclass(frozen=True)
class NetworkKind:
    """Functions that define an architecture; module-level, so that they can be pickled.

    make (Callable): Adds the word pieces and the network to a model.
    file, to_bytes (str, Callable): Name and contents of the file that is stored in addition to word
        pieces and weights.
    rebuild (Callable): Rebuilds the network from word pieces and that file, without weights.
    infer (Callable): Returns the function that encodes names with the current weights.
    """

    make: Callable[[Model, EncoderSource], None]
    file: str
    to_bytes: Callable[[Model], bytes]
    rebuild: Callable[[Model, Tokenizer, bytes], None]
    infer: Callable[[NameEncoder], Infer] = _torch_inference


def pieces_model(name: str, kind: NetworkKind, settings: dict[str, Any], **attrs: object) -> Model:
    """Build a word piece model without its network, which `add_encoder` adds.

    The network of a name encoder reads the word pieces of names. In other models, `add_encoder`
    also sets the attribute `pieces`, which converts inputs to the arguments of the network.

    settings (dict): Settings of the network.
    attrs: For a name encoder: `max_tokens`, the maximum number of word pieces in a name, and
        `batch_size`, the number of names encoded together.
    """
    attrs = {"kind": kind, "settings": settings, "tokenizer": None, "pieces": None} | attrs
    attrs["quantized"] = False
    # Special pieces before and after each name.
    attrs |= {"prefix": [], "suffix": []}
    return Model(name, _run_on_pieces, attrs=attrs, dims={"nO": None}, refs={"network": None})


def name_encoder_of(model: Model) -> NameEncoder:
    """Return the name encoder of a linker's model: one of its layers, or the model itself."""
    return model.get_ref("names") if model.has_ref("names") else model


def add_encoder(model: Model, source: EncoderSource) -> None:
    """Add the word pieces and the network to a model with a `NetworkKind`.

    RAISES BioelError: [B040] if torch is missing; other errors depend on the architecture.
    """
    model.attrs["kind"].make(model, source)


def get_network(model: Model) -> Any:
    """Return a model's torch module. Call `add_encoder` first."""
    return network_of(model.get_ref("network"))


def inference_of(model: NameEncoder) -> Infer:
    """Return the function that encodes names with the current weights, for `encode_names`."""
    return model.attrs["kind"].infer(model)


def encode_names(
    model: NameEncoder, names: Sequence[str], *, infer: Infer | None = None
) -> FloatArray:
    """Encode normalised names as unit vectors, in parallel batches. Shape (n_names, dim).

    infer (Callable | None): The result of `inference_of`; None: use the current weights.
    """
    size = model.attrs["batch_size"] * (_GPU_BATCH_FACTOR if is_on_gpu(model) else 1)
    batches = [names[start : start + size] for start in range(0, len(names), size)]
    return encode_pieces(model, [piece_ids(model, batch) for batch in batches], infer=infer)


def encode_pieces(
    model: NameEncoder, batches: Sequence[Sequence[list[int]]], *, infer: Infer | None = None
) -> FloatArray:
    """Encode batches of names, given as word pieces from `piece_ids`; see `encode_names`."""
    infer = infer or inference_of(model)
    with one_thread_each(on_gpu=is_on_gpu(model)) as parallel_map:
        encoded = parallel_map(infer, batches)
    vectors = np.concatenate([np.zeros((0, model.get_dim("nO")), np.float32), *encoded])
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)


def piece_ids(model: NameEncoder, names: Sequence[str]) -> list[list[int]]:
    """Return each name's word piece ids, including special pieces; [UNK] if there are none."""
    tokenizer = model.attrs["tokenizer"]
    prefix, suffix = model.attrs["prefix"], model.attrs["suffix"]
    encodings = tokenizer.encode_batch_fast(list(names), add_special_tokens=False)
    unknown = [tokenizer.token_to_id("[UNK]") or 0]
    return [[*prefix, *encoding.ids, *suffix] or unknown for encoding in encodings]


def _run_on_pieces(model: Model, inputs: Any, is_train: bool) -> tuple[Any, Callable]:
    model.attrs["quantized"] &= not is_train
    pieces = model.attrs["pieces"]
    arrays = pieces(inputs) if pieces else Pieces.of_rows(piece_ids(model, inputs))
    return model.get_ref("network")(arrays, is_train)


# Files.


def encoder_parts(model: Model) -> EncoderFiles:
    """Return the encoder's files by name, for `load_encoder`; empty before `add_encoder`."""
    tokenizer, kind = model.attrs["tokenizer"], model.attrs["kind"]
    if tokenizer is None:
        return {}
    # The linker's fingerprint depends on the order of these files.
    return {
        _TOKENIZER_FILE: lambda: tokenizer.to_str().encode("utf8"),
        kind.file: lambda: kind.to_bytes(model),
        _WEIGHTS_FILE: lambda: weights_to_bytes(model),
    }


def load_encoder(model: Model, parts: Mapping[str, bytes]) -> None:
    """Load the encoder in `parts` into a model; if `parts` has none, drop the model's encoder.

    RAISES BioelError: [B041] if weights do not fit, [B044] if the tables are for another
        vocabulary, [B240] if a file is damaged; [B040, B150] without torch or transformers.
    """
    if _TOKENIZER_FILE not in parts:
        drop_encoder(model)
        return
    with reading_part(_TOKENIZER_FILE):
        tokenizer = Tokenizer.from_str(parts[_TOKENIZER_FILE].decode("utf8"))
    kind = model.attrs["kind"]
    kind.rebuild(model, tokenizer, parts[kind.file])
    weights_from_bytes(model, parts[_WEIGHTS_FILE])


def write_encoder(model: NameEncoder, folder: Path) -> None:
    """Write an encoder to a folder, for `read_encoder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in encoder_parts(model).items():
        (folder / name).write_bytes(part())
    settings = json.dumps(encoder_settings(model), indent=1) + "\n"
    (folder / _SETTINGS_FILE).write_text(settings, encoding="utf8")


def read_encoder(model: NameEncoder, folder: Path) -> None:
    """Load word pieces and weights from a folder written by `write_encoder`.

    RAISES BioelError: [B046] if a file is missing, [B047] if the architecture or size differs from
        the settings of `model`; the same errors as `load_encoder`.
    """
    try:
        found = json.loads((folder / _SETTINGS_FILE).read_text(encoding="utf8"))
        parts = {path.name: path.read_bytes() for path in folder.iterdir()}
        del parts[_SETTINGS_FILE]
    except (OSError, ValueError, RecursionError) as error:
        raise BioelError(Errors.B046.format(folder=folder, reason=error)) from error
    if found != (expected := encoder_settings(model)):
        raise BioelError(Errors.B047.format(folder=folder, found=found, expected=expected))
    if missing := {_TOKENIZER_FILE, _WEIGHTS_FILE, model.attrs["kind"].file} - set(parts):
        raise BioelError(Errors.B046.format(folder=folder, reason=f"no {sorted(missing)}"))
    load_encoder(model, parts)


def drop_encoder(model: Model) -> None:
    """Remove the word pieces and the network from a model."""
    model.attrs["tokenizer"] = None
    model.layers.clear()
    model.set_ref("network", None)


def encoder_settings(model: NameEncoder) -> dict[str, Any]:
    """Return the settings that two encoders must share for one to load the other's weights."""
    settings = {k: v for k, v in model.attrs["settings"].items() if k != "dropout"}
    return {"encoder": model.name, "max_tokens": model.attrs["max_tokens"], **settings}


def build_rescnn_v1(
    *,
    dim: int = 256,
    blocks: int = 4,
    filters: int = 100,
    widths: list[int] = [1, 3, 5],  # noqa: B006 - read-only; a config default must be a list
    pooling: str = "max",
    dropout: float = 0.2,
    max_tokens: int = 25,
) -> NameEncoder:
    """Registered as `spacy-bioel.ResCNN.v1`; see `models.networks` for the paper and the arguments.

    max_tokens (int): Maximum number of word pieces in a name.
    RETURNS (Model[Sequence[str], Floats2d]): An encoder without its network, which `add_encoder`
        adds.
    RAISES BioelError: [B045] if the pooling is unknown.
    """
    if pooling not in ("max", "attention"):
        raise BioelError(Errors.B045.format(pooling=pooling))
    settings: dict[str, Any] = {"dim": dim, "blocks": blocks, "filters": filters}
    settings |= {"widths": list(widths), "pooling": pooling, "dropout": dropout}
    # A batch of 256 names fits in the CPU caches.
    model = pieces_model("rescnn", _RESCNN, settings, max_tokens=max_tokens, batch_size=256)
    model.set_dim("nO", dim)
    return model


def add_rescnn(
    model: NameEncoder,
    tokenizer: Tokenizer,
    tables: EmbeddingTables,
    *,
    source: str = _EMBEDDINGS_FILE,
) -> None:
    """Add a vocabulary and a network to an encoder.

    source (str): Where the tables come from, for messages.
    RAISES BioelError: [B044] if the tables are for another vocabulary.
    """
    rows, pieces = len(tables["words"]), n_pieces(tokenizer)
    if rows < pieces:
        raise BioelError(Errors.B044.format(folder=source, rows=rows, pieces=pieces))
    tokenizer.no_padding()
    tokenizer.enable_truncation(model.attrs["max_tokens"])
    settings = model.attrs["settings"]
    model.attrs.update(tokenizer=tokenizer, tables=tables)
    shapes = rescnn_shapes(width=tables["words"].shape[1], **settings)
    make = partial(_make_rescnn_network, tables, settings)
    set_layer(model, torch_layer(make=make, shapes=shapes))


def _make_rescnn_network(tables: EmbeddingTables, settings: dict[str, Any]) -> nn.Module:
    import torch

    from spacy_bioel.models import networks

    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in tables.items()}
    return networks.ResCNN(networks.FrozenEmbeddings(**tensors), **settings)


def _make_rescnn(model: NameEncoder, source: EncoderSource) -> None:
    """Add word pieces and embeddings, loaded from a Hugging Face folder or computed from names."""
    max_tokens, kb = model.attrs["max_tokens"], source.kb
    if source.embeddings is not None:
        vocabulary = load_huggingface(Path(source.embeddings), max_tokens=max_tokens)
    else:
        vocabulary = make_vocabulary(
            [normalize_name(name) for name in kb.names],
            kb.name_concepts[kb.name_offsets[:-1]].astype(np.int64),
            more_names=source.more_names,
            size=source.vocabulary,
            width=source.width,
            max_tokens=max_tokens,
        )
    add_rescnn(model, *vocabulary, source=source.embeddings or _EMBEDDINGS_FILE)
    get_network(model)


def _tables_to_bytes(model: NameEncoder) -> bytes:
    return save(model.attrs["tables"])


def _rebuild_rescnn(model: NameEncoder, tokenizer: Tokenizer, data: bytes) -> None:
    with reading_part(_EMBEDDINGS_FILE):
        tables = load(data)
        # Check that the tables fit `FrozenEmbeddings`.
        found = {name: table.shape for name, table in tables.items()}
        n, width = found.get("words", (0, 0))
        positions = model.attrs["max_tokens"], width
        expected = {"words": (n, width), "positions": positions, "token_type": (width,)}
        expected |= {"norm_weight": (width,), "norm_bias": (width,)}
        if "scale" in found:  # word embeddings are stored as integers
            expected["scale"] = (n, 1)
        dtypes = {table.dtype for name, table in tables.items() if name != "words"}
        if found != expected or dtypes != {np.dtype(np.float32)}:
            raise ValueError(f"expected float32 of the shapes {expected}, found {found}")
    add_rescnn(model, tokenizer, tables)


def _rescnn_inference(model: NameEncoder) -> Infer:
    layer = model.get_ref("network")
    if is_on_gpu(layer):
        return _torch_inference(model)
    widths = model.attrs["settings"]["widths"]
    tables, quantized = model.attrs["tables"], model.attrs["quantized"]
    return NumpyResCNN(weights_of(layer), tables, widths=widths, quantized=quantized)


_RESCNN = NetworkKind(
    _make_rescnn, _EMBEDDINGS_FILE, _tables_to_bytes, _rebuild_rescnn, _rescnn_inference
)
