"""Hugging Face checkpoints, from a folder or the hub, the kind of models around one, and one of
these: a name encoder such as SapBERT.

Configuration, word pieces and weights are saved with the pipe, so that loading a pipeline does not
need the checkpoint.
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

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, NetworkKind, pieces_model
from spacy_bioel.models.torch_io import reading_part, require_torch, set_layer, torch_layer
from spacy_bioel.models.vocabulary import n_pieces

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from spacy_bioel.contextual.networks import NameTransformer, Pretrained

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
_OLD_VOCABULARIES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
_FILES = (CONFIG, WEIGHTS, TOKENIZER, "tokenizer_config.json", "special_tokens_map.json")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+|[\w.-]+")
# From a model, tokenizer, backbone, and folder of a checkpoint; None if from the files of a model.
Add = Callable[[Model, Tokenizer, "PreTrainedModel", Path | None], None]
# Names of the dropout of attention weights in configurations of backbones.
_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")
# Keys about the origin of a checkpoint, which do not change the encoder.
_NOT_STORED = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")


def require_transformers() -> None:
    """Check that transformers and torch are installed.

    RAISES BioelError: [B150] without the package transformers, [B040] without torch.
    """
    require_torch()
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B150.format(error=error)) from error


def read_checkpoint(
    path: str, *, max_pieces: int, writes: bool = False
) -> tuple[Path, PreTrainedModel, Tokenizer]:
    """Load a checkpoint from a folder or the hub.

    max_pieces (int): Longest input in word pieces, special ones included.
    writes (bool): Load an encoder-decoder with its head over word pieces; else an encoder.
    RETURNS (tuple[Path, PreTrainedModel, Tokenizer]): Folder, backbone without its pooler, and
        tokenizer without padding or truncation.
    RAISES BioelError: [B150] transformers is missing, [B152] no checkpoint is found, [B153] a file
        is missing, such as that of a fast tokenizer, [B154] parts do not fit one another, [B280]
        it is no encoder-decoder.
    """
    require_transformers()
    folder = _find_checkpoint(path)
    backbone, tokenizer = _load_backbone(folder, writes=writes), _load_tokenizer(folder)
    rows, pieces = backbone.config.vocab_size, tokenizer.get_vocab_size()
    if rows < pieces:
        raise misfit(folder, f"{pieces} word pieces", f"at most the {rows} of its embeddings")
    n_positions = getattr(backbone.config, "max_position_embeddings", max_pieces)
    if max_pieces > n_positions:
        raise misfit(folder, f"{n_positions} positions", f"at least the {max_pieces} to be read")
    return folder, backbone, tokenizer


def backbone_from_json(config: str, *, writes: bool = False) -> PreTrainedModel:
    """Backbone with random weights, from the output of `config_to_json`."""
    require_transformers()
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

    settings = json.loads(config)
    made = AutoConfig.for_model(settings.pop("model_type"), **settings)
    return _without_pooler((AutoModelForSeq2SeqLM if writes else AutoModel).from_config(made))


def special_pieces(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids of the special pieces before and after a text, such as [CLS] and [SEP].

    Padding and truncation of the tokenizer are switched off.
    """
    tokenizer.no_padding()
    tokenizer.no_truncation()
    pieces = tokenizer.encode("a")
    is_special = pieces.special_tokens_mask
    n_before = is_special.index(0) if 0 in is_special else len(is_special)
    n_after = len(is_special) - n_before - is_special.count(0)
    return pieces.ids[:n_before], pieces.ids[len(is_special) - n_after :]


def pieces_of(tokenizer: Tokenizer, texts: Iterable[str], before: str = "") -> dict[str, list[int]]:
    """Word pieces of texts, each with what comes before it."""
    different = list(dict.fromkeys(texts))
    found = tokenizer.encode_batch_fast(
        [before + text if text else "" for text in different], add_special_tokens=False
    )
    return {text: e.ids for text, e in zip(different, found, strict=True)}


def in_context(left: list[int], marked: list[int], right: list[int], room: int) -> list[int]:
    """A marked mention with as much context as there is room for: the pieces nearest to it."""
    n_left, n_right = split_room(room - len(marked), len(left), len(right))
    return [*left[len(left) - n_left :], *marked, *right[:n_right]]


def split_room(room: int, first: int, second: int) -> tuple[int, int]:
    """Split `room` between two lengths: half each, and the unused part of a half to the other."""
    kept = min(first, max(room // 2, room - second))
    return kept, min(second, room - kept)


def _find_checkpoint(path: str) -> Path:
    """Folder of a checkpoint; one of the hub is downloaded unless it is in the cache."""
    if Path(path).is_dir():
        return Path(path)
    if not _HUB_ID.fullmatch(path):
        raise BioelError(Errors.B152.format(path=path, error="it cannot be an id of the hub"))
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path, allow_patterns=[*_FILES, *_OLD_VOCABULARIES]))
    except Exception as error:  # the network, the cache and the hub have their own exceptions
        raise BioelError(Errors.B152.format(path=path, error=error)) from error


def _load_backbone(folder: Path, *, writes: bool) -> PreTrainedModel:
    """Network of a checkpoint, without the pooler, which is not used.

    Dropout of attention weights is disabled, whatever the config says: with it PyTorch cannot use
    its fused kernels, and an update on a CPU takes 1.7 times as long.

    """
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise BioelError(Errors.B153.format(folder=folder, missing=name))
    try:
        with _quiet():
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            for name in _ATTENTION_DROPOUTS:
                if hasattr(config, name):
                    setattr(config, name, 0.0)
            if writes and type(config) not in AutoModelForSeq2SeqLM._model_mapping:
                raise BioelError(Errors.B280.format(folder=folder, found=config.model_type))
            backbone, loading = (AutoModelForSeq2SeqLM if writes else AutoModel).from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
    except BioelError:
        raise
    except Exception as error:  # json, safetensors and transformers have their own exceptions
        missing = f"readable {CONFIG} and {WEIGHTS} ({error})"
        raise BioelError(Errors.B153.format(folder=folder, missing=missing)) from error
    missing_keys = sorted(key for key in loading["missing_keys"] if "pooler." not in key)
    if missing_keys:
        raise misfit(folder, f"no {missing_keys[0]} in {WEIGHTS}", "all that its config names")
    return _without_pooler(backbone)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence progress bars and warnings of missing tensors, which the caller checks itself."""
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


def _load_tokenizer(folder: Path) -> Tokenizer:
    """Word pieces of a checkpoint. RAISES BioelError: [B153] without a readable tokenizer."""
    if (folder / TOKENIZER).is_file():
        try:
            return Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # tokenizers raises bare exceptions
            missing = f"readable {TOKENIZER} ({error})"
            raise BioelError(Errors.B153.format(folder=folder, missing=missing)) from error
    from transformers import AutoTokenizer

    backend = None
    if any((folder / name).is_file() for name in _OLD_VOCABULARIES):
        slow_or_fast = AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True)
        backend = getattr(slow_or_fast, "backend_tokenizer", None)
    if backend is None:
        missing = f"{TOKENIZER}, nor a vocabulary that transformers makes a fast tokenizer of"
        raise BioelError(Errors.B153.format(folder=folder, missing=missing))
    return backend


def misfit(folder: Path | None, found: str, expected: str) -> BioelError:
    """Error [B154] about a checkpoint or, without a folder, a saved encoder."""
    where = folder or "The saved encoder"
    return BioelError(Errors.B154.format(folder=where, found=found, expected=expected))


def config_to_json(config: PretrainedConfig) -> str:
    """Configuration of a backbone as JSON, without the keys about its origin."""
    settings = {k: v for k, v in config.to_dict().items() if k not in _NOT_STORED}
    return json.dumps(settings, indent=1, sort_keys=True)


def set_backbone(model: Model, tokenizer: Tokenizer, network: Pretrained | NameTransformer) -> None:
    """Set word pieces and network, replacing any previous ones."""
    set_layer(model, torch_layer(network))
    model.attrs["tokenizer"] = tokenizer
    model.attrs["config"] = config_to_json(network.backbone.config)


def checkpoint_kind(
    make: Callable[[Model, EncoderSource], None], add: Add, *, writes: bool = False
) -> NetworkKind:
    """The kind of models around a backbone, which store its configuration as one more file.

    add (Callable): Adds word pieces and network to the model.
    writes (bool): The backbone is an encoder-decoder; else an encoder.
    """
    return NetworkKind(make, CONFIG, _config_to_bytes, partial(_rebuild, add, writes))


def _config_to_bytes(model: Model) -> bytes:
    return model.attrs["config"].encode("utf8")


def _rebuild(add: Add, writes: bool, model: Model, tokenizer: Tokenizer, data: bytes) -> None:
    with reading_part(CONFIG):
        config = data.decode("utf8")
        backbone = backbone_from_json(config, writes=writes)
    if (rows := backbone.config.vocab_size) < (pieces := n_pieces(tokenizer)):
        raise misfit(None, f"word piece {pieces - 1}", f"only the {rows} of its embeddings")
    add(model, tokenizer, backbone, None)
    # Verbatim: it is part of a fingerprint, and transformers may add settings.
    model.attrs["config"] = config


def build_transformer_names_v1(
    *, path: str | None = None, pooling: str = "cls", max_tokens: int = 25
) -> NameEncoder:
    """Registered as `spacy-bioel.TransformerNames.v1`; see `contextual.networks` for the paper.

    path (str | None): Folder of a Hugging Face checkpoint with safetensors weights, or its id on
        the hub, read by `initialize`; None: the argument `embeddings` of `initialize`.
    pooling (str): "cls" or "mean".
    max_tokens (int): Maximum number of word pieces of a name, special ones included.
    RETURNS (Model[Sequence[str], Floats2d]): An encoder without its network, which `add_encoder`
        adds; the size of the vectors is that of the checkpoint.
    RAISES BioelError: [B155] on an unknown pooling.
    """
    if pooling not in ("cls", "mean"):
        raise BioelError(Errors.B155.format(pooling=pooling))
    # A large batch, because the network groups its names by length.
    settings = {"path": path, "pooling": pooling}
    sizes: dict[str, Any] = {"max_tokens": max_tokens, "batch_size": 2048}
    return pieces_model("name_transformer", _KIND, settings, extra="transformers", **sizes)


def _make(model: NameEncoder, source: EncoderSource) -> None:
    path = model.attrs["settings"]["path"] or source.embeddings
    if path is None:
        raise BioelError(Errors.B151)
    folder, backbone, tokenizer = read_checkpoint(path, max_pieces=model.attrs["max_tokens"])
    _add(model, tokenizer, backbone, folder)


def _add(
    model: NameEncoder, tokenizer: Tokenizer, backbone: PreTrainedModel, folder: Path | None
) -> None:
    """Set word pieces and network. RAISES BioelError: [B154] on "cls" pooling without [CLS]."""
    from spacy_bioel.contextual.networks import NameTransformer

    prefix, suffix = special_pieces(tokenizer)
    if model.attrs["settings"]["pooling"] == "cls" and not prefix:
        raise misfit(folder, "no special piece before a name", "one, such as [CLS]")
    model.attrs["prefix"], model.attrs["suffix"] = prefix, suffix
    tokenizer.enable_truncation(max(1, model.attrs["max_tokens"] - len(prefix) - len(suffix)))
    network = NameTransformer(backbone, pooling=model.attrs["settings"]["pooling"])
    set_backbone(model, tokenizer, network)
    model.set_dim("nO", backbone.config.hidden_size, force=True)


_KIND = checkpoint_kind(_make, _add)
