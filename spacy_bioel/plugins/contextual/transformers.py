"""Hugging Face checkpoints as model parts, and a name encoder built on one, such as SapBERT.

A checkpoint is loaded from a folder or the hub. Its configuration, word pieces and weights are
saved with the pipe, so a saved pipeline can be loaded without the checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinc.api import Model
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, NetworkKind, pieces_model
from spacy_bioel.models.torch_io import reading_part, require_torch, set_layer, torch_layer
from spacy_bioel.models.vocabulary import n_pieces
from spacy_bioel.plugins.contextual.errors import ContextualErrors

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from spacy_bioel.plugins.contextual.networks import NameTransformer, Pretrained

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
_OLD_VOCABULARIES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
_FILES = (CONFIG, WEIGHTS, TOKENIZER, "tokenizer_config.json", "special_tokens_map.json")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+|[\w.-]+")
# Sets a model's tokenizer and backbone; the folder is None when a saved model is loaded.
SetBackbone = Callable[[Model, Tokenizer, "PreTrainedModel", Path | None], None]
# Configuration keys for attention dropout.
_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")
# Configuration keys that describe a checkpoint's origin and do not affect the network.
_NOT_STORED = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")


def require_transformers() -> None:
    """Check that transformers and torch are installed. RAISES BioelError: [B150], [B040] if not."""
    require_torch()
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise BioelError(ContextualErrors.B150.format(error=error)) from error


def read_checkpoint(
    path: str, *, max_pieces: int, is_seq2seq: bool = False
) -> tuple[Path, PreTrainedModel, Tokenizer]:
    """Load a checkpoint from a folder or the hub.

    max_pieces (int): Longest input in word pieces, special ones included.
    is_seq2seq (bool): Load an encoder-decoder with its head over word pieces instead of an encoder.
    RETURNS (tuple[Path, PreTrainedModel, Tokenizer]): Folder, backbone without its pooler, and
        tokenizer.
    RAISES BioelError: [B150] without transformers, [B152] if no checkpoint is found, [B153] if a
        file is missing, such as a fast tokenizer, [B154] if parts of the checkpoint do not fit
        together, [B280] if `is_seq2seq` and the checkpoint is not an encoder-decoder.
    """
    require_transformers()
    folder = _checkpoint_folder(path)
    backbone = _load_backbone(folder, is_seq2seq=is_seq2seq)
    tokenizer = _load_checkpoint_tokenizer(folder)
    n_embeddings, vocab_size = backbone.config.vocab_size, tokenizer.get_vocab_size()
    if n_embeddings < vocab_size:
        raise misfit(folder, f"{vocab_size} word pieces", f"at most its {n_embeddings} embeddings")
    n_positions = getattr(backbone.config, "max_position_embeddings", max_pieces)
    if max_pieces > n_positions:
        raise misfit(folder, f"{n_positions} positions", f"at least {max_pieces} for an input")
    return folder, backbone, tokenizer


def backbone_from_json(config: str, *, is_seq2seq: bool = False) -> PreTrainedModel:
    """Create a backbone with random weights from the output of `config_to_json`."""
    require_transformers()
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

    settings = json.loads(config)
    auto_config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    auto_model = AutoModelForSeq2SeqLM if is_seq2seq else AutoModel
    return _without_pooler(auto_model.from_config(auto_config))


def special_pieces(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Disable padding and truncation, and return the ids of the special pieces before and after a
    text, such as [CLS] and [SEP]."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    pieces = tokenizer.encode("a")
    is_special = pieces.special_tokens_mask
    n_before = is_special.index(0) if 0 in is_special else len(is_special)
    n_after = len(is_special) - n_before - is_special.count(0)
    return pieces.ids[:n_before], pieces.ids[len(is_special) - n_after :]


def pieces_of(tokenizer: Tokenizer, texts: Iterable[str], before: str = "") -> dict[str, list[int]]:
    """Tokenise each text after prepending `before`; an empty text has no pieces."""
    unique_texts = list(dict.fromkeys(texts))
    encodings = tokenizer.encode_batch_fast(
        [before + text if text else "" for text in unique_texts], add_special_tokens=False
    )
    return {text: e.ids for text, e in zip(unique_texts, encodings, strict=True)}


def fit_context(left: list[int], marked: list[int], right: list[int], room: int) -> list[int]:
    """Add as much context to a marked mention as fits into `room` pieces in total."""
    n_left, n_right = split_room(room - len(marked), len(left), len(right))
    return [*left[len(left) - n_left :], *marked, *right[:n_right]]


def split_room(room: int, first: int, second: int) -> tuple[int, int]:
    """Split `room` between two lengths: half each, plus whatever the other one does not need."""
    kept = min(first, max(room // 2, room - second))
    return kept, min(second, room - kept)


def _checkpoint_folder(path: str) -> Path:
    """Return a checkpoint's folder, downloading the checkpoint unless it is local or cached."""
    if Path(path).is_dir():
        return Path(path)
    if not _HUB_ID.fullmatch(path):
        raise BioelError(
            ContextualErrors.B152.format(path=path, error="it cannot be an id on the hub")
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path, allow_patterns=[*_FILES, *_OLD_VOCABULARIES]))
    except Exception as error:  # the network, the cache and the hub raise various exceptions
        raise BioelError(ContextualErrors.B152.format(path=path, error=error)) from error


def _load_backbone(folder: Path, *, is_seq2seq: bool) -> PreTrainedModel:
    """Load a checkpoint's network without its unused pooler.

    Dropout of attention weights is disabled regardless of the config: it prevents PyTorch from
    using its fused kernels, which makes an update on a CPU take 1.7 times as long.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise BioelError(ContextualErrors.B153.format(folder=folder, missing=name))
    try:
        with _quiet():
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            for name in _ATTENTION_DROPOUTS:
                if hasattr(config, name):
                    setattr(config, name, 0.0)
            if is_seq2seq and type(config) not in AutoModelForSeq2SeqLM._model_mapping:
                raise BioelError(
                    ContextualErrors.B280.format(folder=folder, found=config.model_type)
                )
            auto_model = AutoModelForSeq2SeqLM if is_seq2seq else AutoModel
            backbone, loading = auto_model.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
    except BioelError:
        raise
    except Exception as error:  # json, safetensors and transformers raise various exceptions
        missing = f"readable {CONFIG} and {WEIGHTS} ({error})"
        raise BioelError(ContextualErrors.B153.format(folder=folder, missing=missing)) from error
    missing_keys = sorted(key for key in loading["missing_keys"] if "pooler." not in key)
    if missing_keys:
        raise misfit(folder, f"no {missing_keys[0]} in {WEIGHTS}", f"all tensors of its {CONFIG}")
    return _without_pooler(backbone)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence progress bars and missing-tensor warnings; the caller checks for missing tensors."""
    from transformers.utils import logging

    verbosity, had_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bar:
            logging.enable_progress_bar()


def _without_pooler(backbone: PreTrainedModel) -> PreTrainedModel:
    if hasattr(backbone, "pooler"):
        backbone.pooler = None  # type: ignore[assignment]
    return backbone.float()


def _load_checkpoint_tokenizer(folder: Path) -> Tokenizer:
    """Load a checkpoint's tokenizer. RAISES BioelError: [B153] if it is missing or unreadable."""
    if (folder / TOKENIZER).is_file():
        try:
            return Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # tokenizers raises plain `Exception`
            missing = f"readable {TOKENIZER} ({error})"
            raise BioelError(
                ContextualErrors.B153.format(folder=folder, missing=missing)
            ) from error
    from transformers import AutoTokenizer

    fast_tokenizer = None
    if any((folder / name).is_file() for name in _OLD_VOCABULARIES):
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True)
        fast_tokenizer = getattr(tokenizer, "backend_tokenizer", None)
    if fast_tokenizer is None:
        missing = f"{TOKENIZER} or vocabulary that transformers can convert to a fast tokenizer"
        raise BioelError(ContextualErrors.B153.format(folder=folder, missing=missing))
    return fast_tokenizer


def misfit(folder: Path | None, found: str, expected: str) -> BioelError:
    """Return error B154 for a checkpoint or, if `folder` is None, a saved encoder."""
    where = folder or "The saved encoder"
    return BioelError(ContextualErrors.B154.format(folder=where, found=found, expected=expected))


def config_to_json(config: PretrainedConfig) -> str:
    """Return a backbone's configuration as JSON, without keys that describe its origin."""
    settings = {k: v for k, v in config.to_dict().items() if k not in _NOT_STORED}
    return json.dumps(settings, indent=1, sort_keys=True)


def set_backbone(model: Model, tokenizer: Tokenizer, network: Pretrained | NameTransformer) -> None:
    """Set the tokenizer and the network, replacing any previous ones."""
    set_layer(model, torch_layer(network))
    model.attrs["tokenizer"] = tokenizer
    model.attrs["config"] = config_to_json(network.backbone.config)


def checkpoint_kind(
    make: Callable[[Model, EncoderSource], None], add: SetBackbone, *, is_seq2seq: bool = False
) -> NetworkKind:
    """Create the `NetworkKind` for models with a backbone. It also saves the backbone's config.

    add (Callable): Adds the word pieces and the network to the model.
    is_seq2seq (bool): Whether the backbone is an encoder-decoder rather than an encoder.
    """
    return NetworkKind(make, CONFIG, _config_to_bytes, partial(_rebuild_backbone, add, is_seq2seq))


def _config_to_bytes(model: Model) -> bytes:
    return model.attrs["config"].encode("utf8")


def _rebuild_backbone(
    add: SetBackbone, is_seq2seq: bool, model: Model, tokenizer: Tokenizer, data: bytes
) -> None:
    with reading_part(CONFIG):
        config = data.decode("utf8")
        backbone = backbone_from_json(config, is_seq2seq=is_seq2seq)
    n_embeddings, n = backbone.config.vocab_size, n_pieces(tokenizer)
    if n_embeddings < n:
        raise misfit(None, f"{n} word pieces", f"at most its {n_embeddings} embeddings")
    add(model, tokenizer, backbone, None)
    # Keep the original config text: a fingerprint includes it, and transformers may add settings.
    model.attrs["config"] = config


def build_transformer_names_v1(
    *, path: str | None = None, pooling: str = "cls", max_tokens: int = 25
) -> NameEncoder:
    """Registered as `spacy-bioel.TransformerNames.v1`; see `contextual.networks` for the paper.

    path (str | None): Folder of a Hugging Face checkpoint with safetensors weights, or its id on
        the hub; None: the `embeddings` argument of `initialize`. `initialize` loads the checkpoint.
    pooling (str): "cls" or "mean".
    max_tokens (int): Maximum number of word pieces in a name, including special ones.
    RETURNS (Model[Sequence[str], Floats2d]): An encoder without its network, which `add_encoder`
        adds; the checkpoint determines the size of the vectors.
    RAISES BioelError: [B155] if the pooling is unknown.
    """
    if pooling not in ("cls", "mean"):
        raise BioelError(ContextualErrors.B155.format(pooling=pooling))
    settings = {"path": path, "pooling": pooling}
    # Use a large batch, because the network groups the names in a batch by length.
    sizes: dict[str, Any] = {"max_tokens": max_tokens, "batch_size": 2048}
    kind = _NAME_TRANSFORMER_KIND
    return pieces_model("name_transformer", kind, settings, extra="transformers", **sizes)


def _make_name_transformer(model: NameEncoder, source: EncoderSource) -> None:
    path = model.attrs["settings"]["path"] or source.embeddings
    if path is None:
        raise BioelError(ContextualErrors.B151)
    folder, backbone, tokenizer = read_checkpoint(path, max_pieces=model.attrs["max_tokens"])
    _set_name_transformer(model, tokenizer, backbone, folder)


def _set_name_transformer(
    model: NameEncoder, tokenizer: Tokenizer, backbone: PreTrainedModel, folder: Path | None
) -> None:
    """Set the tokenizer and the network. RAISES BioelError: [B154] if there is no "cls" piece."""
    from spacy_bioel.plugins.contextual.networks import NameTransformer

    prefix, suffix = special_pieces(tokenizer)
    if model.attrs["settings"]["pooling"] == "cls" and not prefix:
        raise misfit(folder, "no special piece before a name", "one, such as [CLS]")
    model.attrs["prefix"], model.attrs["suffix"] = prefix, suffix
    tokenizer.enable_truncation(max(1, model.attrs["max_tokens"] - len(prefix) - len(suffix)))
    network = NameTransformer(backbone, pooling=model.attrs["settings"]["pooling"])
    set_backbone(model, tokenizer, network)
    model.set_dim("nO", backbone.config.hidden_size, force=True)


_NAME_TRANSFORMER_KIND = checkpoint_kind(_make_name_transformer, _set_name_transformer)
