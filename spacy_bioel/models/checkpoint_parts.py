"""Files of models round a Hugging Face network: configuration, word pieces, weights.

Such a model has `pieces` and `config` among its attributes, None until `set_backbone`. In a linker
its files have a prefix, for the name encoder may have files of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from thinc.api import Model
from tokenizers import Tokenizer

from spacy_bioel.models.checkpoint import (
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    backbone_from_json,
    config_to_json,
)
from spacy_bioel.models.name_encoder import Parts
from spacy_bioel.models.torch_io import (
    arrays_to_torch,
    output_from_torch,
    reading_part,
    weights_from_bytes,
    weights_to_bytes,
    wrap_torch,
)


def set_backbone(model: Model, network: Any, pieces: Any) -> None:
    """Set network and word pieces, replacing any previous ones.

    network (torch.nn.Module): From arrays to one output, with a `backbone`.
    pieces (Any): Makes the arrays, with a `tokenizer`.
    """
    wrapper = wrap_torch(network, convert_inputs=arrays_to_torch, convert_outputs=output_from_torch)
    model.layers.clear()
    model.layers.append(wrapper)
    model.set_ref("network", wrapper)
    model.attrs["pieces"] = pieces
    model.attrs["config"] = config_to_json(network.backbone.config)


def checkpoint_parts(model: Model) -> Parts:
    """Files for `load_checkpoint_parts`: bytes by file name; empty without a network."""
    if model.attrs["pieces"] is None:
        return {}
    tokenizer, config = model.attrs["pieces"].tokenizer, model.attrs["config"]
    return {
        CONFIG: lambda: config.encode("utf8"),
        TOKENIZER: lambda: tokenizer.to_str().encode("utf8"),
        WEIGHTS: lambda: weights_to_bytes(model),
    }


def load_checkpoint_parts(
    model: Model,
    parts: Mapping[str, bytes],
    add: Callable[[Model, Tokenizer, Any], None],
    *,
    writes: bool = False,
) -> None:
    """Load the files of `checkpoint_parts`, if they are there.

    add (Callable): Adds word pieces and network to the model, from tokenizer and backbone.
    writes (bool): Load an encoder-decoder; else an encoder.
    RAISES BioelError: [B040, B150] torch or transformers is missing; [B041] the weights do not fit;
        [B240] another file is damaged.
    """
    if TOKENIZER not in parts:
        return
    backbone, config = read_backbone(parts, writes=writes)
    with reading_part(TOKENIZER):
        tokenizer = Tokenizer.from_str(parts[TOKENIZER].decode("utf8"))
    add(model, tokenizer, backbone)
    weights_from_bytes(model, parts[WEIGHTS])
    model.attrs["config"] = config


def read_backbone(parts: Mapping[str, bytes], *, writes: bool = False) -> tuple[Any, str]:
    """The backbone without its weights, and its configuration as it stands in the file.

    Kept verbatim, the configuration is saved again as the same even if transformers adds settings.

    RAISES BioelError: [B240] when the file is damaged.
    """
    with reading_part(CONFIG):
        config = parts[CONFIG].decode("utf8")
        return backbone_from_json(config, writes=writes), config


def with_prefix(prefix: str, parts: Parts) -> Parts:
    """The files of a model as a linker names them."""
    return {prefix + name: part for name, part in parts.items()}


def of_prefix(prefix: str, parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a linker that `with_prefix` named, by their own names."""
    return {k.removeprefix(prefix): part for k, part in parts.items() if k.startswith(prefix)}
