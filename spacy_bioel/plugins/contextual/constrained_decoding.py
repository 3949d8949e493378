"""Constrained decoding: beam search through a trie of knowledge base names.

The trie determines which word pieces may follow a prefix. It is stored as arrays without pointers:
nodes are numbered level by level, and siblings have consecutive numbers. The children of
node i are the nodes first_child[i] to first_child[i + 1], sorted by piece. Each path ends with the
end piece; the names are listed at its last node, a leaf.

The search extends all beams of all mentions in a batch at once, so the mentions' prompts must have
the same length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import (
    MEDIUM,
    Origin,
    TensorFile,
    checksums_of,
    offsets_of,
    positions_of,
    serialized,
)
from spacy_bioel.kb.folder import editing, kb_of, new_home
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.name_encoder import get_network
from spacy_bioel.models.torch_io import device_of, is_on_gpu, to_tensors
from spacy_bioel.parallel import in_halves, one_thread_each
from spacy_bioel.plugins.contextual.errors import ContextualErrors
from spacy_bioel.plugins.contextual.networks import padded_positions
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import FloatArray, IntArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from spacy_bioel.plugins.contextual.generative import MarkedMention, Seq2SeqModel

# Maps normalised names to pieces, including the end piece, or to None if they cannot be generated.
ToPieces = Callable[[Sequence[str]], Iterable[Sequence[int] | None]]
_NAMES_PER_TOKENIZATION = 1 << 14  # names tokenised at once; limits memory use


@dataclass(frozen=True)
class NameTrie:
    """Trie of names, stored in arrays that may be memory-mapped. Node 0 is the root."""

    first_child: NDArray[Any]  # first child of each node; shape (n_nodes + 1,)
    pieces: NDArray[Any]  # piece that leads to each node, unused for the root; shape (n_nodes,)
    leaves: NDArray[Any]  # nodes without children, ascending
    name_offsets: NDArray[Any]  # where each leaf's rows start in `names`; shape (n_leaves + 1,)
    names: NDArray[Any]  # name rows, leaf by leaf
    left_out: int = 0  # number of names that cannot be generated
    nameless: int = 0  # number of concepts without any name in the trie

    def children(self, nodes: NDArray[Any]) -> tuple[IntArray, IntArray]:
        """Return the children of nodes, in CSR form (indptr, children). Node -1 has no children."""
        return positions_of(self.first_child, nodes)

    def pieces_at(self, nodes: IntArray) -> IntArray:
        """Return the piece that leads to each node, as an array shaped like `nodes`."""
        return self.pieces[nodes].astype(np.int64)

    def are_leaves(self, nodes: IntArray) -> NDArray[np.bool_]:
        """Return whether each node ends a name, as an array shaped like `nodes`."""
        return self.first_child[nodes] == self.first_child[nodes + 1]

    def names_of(self, leaves: IntArray) -> tuple[IntArray, IntArray]:
        """Return the name rows at each leaf, in CSR form (indptr, rows)."""
        leaf_index = np.searchsorted(self.leaves, leaves.astype(self.leaves.dtype))
        indptr, positions = positions_of(self.name_offsets, leaf_index)
        return indptr, self.names[positions].astype(np.int64)


def build_trie(
    kb: KnowledgeBase, to_pieces: ToPieces, *, rows: NDArray[Any] | None = None
) -> NameTrie:
    """Build a trie of the names in a knowledge base.

    to_pieces (ToPieces): Converts names to pieces. The end piece must only occur at the end.
    rows (NDArray | None): Rows of the names to include; None: all names.
    """
    rows = np.arange(kb.n_names) if rows is None else np.asarray(rows)
    flat: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    lengths = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _NAMES_PER_TOKENIZATION):
        part = rows[start : start + _NAMES_PER_TOKENIZATION]
        names = normalize_names(kb.names.take(part))
        pieces_of_names = [pieces or () for pieces in to_pieces(names)]
        lengths[start : start + len(part)] = [len(pieces) for pieces in pieces_of_names]
        flat.append(np.array([i for pieces in pieces_of_names for i in pieces], dtype=np.int32))
    trie = trie_of(np.concatenate(flat), lengths, rows)
    nameless = len(kb) - len(np.unique(kb.concepts_of_names(trie.names)[1]))
    return replace(trie, left_out=int((lengths == 0).sum()), nameless=nameless)


def trie_of(flat: NDArray[Any], lengths: IntArray, rows: NDArray[Any]) -> NameTrie:
    """Build a trie level by level: each distinct (parent, piece) pair becomes a node.

    flat (NDArray): Pieces of all names, concatenated. Shape (n_pieces,).
    lengths (IntArray): Number of pieces of each name; names of length 0 are skipped. Shape (n,).
    rows (NDArray): Row of each name. Shape (n,).
    """
    starts = offsets_of(lengths)[:-1]
    node = np.zeros(len(lengths), dtype=np.int64)  # the node that each name has reached
    n_pieces = int(flat.max(initial=0)) + 1
    dtype = np.uint16 if n_pieces <= 1 << 16 else np.uint32
    levels, parents, n_nodes = [np.zeros(1, dtype=dtype)], [np.zeros(0, np.int64)], 1
    unfinished = np.flatnonzero(lengths)
    for level in range(int(lengths.max(initial=0))):
        unfinished = unfinished[lengths[unfinished] > level]
        keys = node[unfinished] * n_pieces + flat[starts[unfinished] + level]
        new_nodes, index = np.unique(keys, return_inverse=True)
        node[unfinished] = n_nodes + index
        levels.append((new_nodes % n_pieces).astype(dtype))
        parents.append(new_nodes // n_pieces)
        n_nodes += len(new_nodes)
    n_children = np.bincount(np.concatenate(parents), minlength=n_nodes)
    # Sort names by leaf, then by row. Leaves have no children, since the end piece only occurs at
    # the end of a name.
    order = np.flatnonzero(lengths)
    order = order[np.argsort(node[order], kind="stable")]
    leaves, counts = np.unique(node[order], return_counts=True)
    return NameTrie(
        first_child=(1 + offsets_of(n_children)).astype(np.uint32),
        pieces=np.concatenate(levels),
        leaves=leaves.astype(np.uint32),
        name_offsets=offsets_of(counts).astype(np.uint32),
        names=rows[order].astype(np.int32),
    )


# Data type and length of each array; see `TensorFile.check`.
TRIE_COLUMNS = {
    "first_child": "uint32 nodes+1",
    "pieces": "uint nodes",
    "leaves": "uint32 leaves",
    "name_offsets": "uint32 leaves+1",
    "names": "int32 names",
}


def write_trie(kb: KnowledgeBase, to_pieces: ToPieces, *, fingerprint: str) -> NameTrie:
    """Write the trie of all names to a knowledge base's folder, unless the folder has it already.

    kb (KnowledgeBase): A knowledge base with a folder. The names currently in the folder are used.
    fingerprint (str): Fingerprint of the word pieces.
    RAISES BioelError: [B182] if the folder is not writable, [B212] if another writer does not
        finish in time.
    """
    assert kb.path is not None
    try:
        with editing(kb.path, to="write a trie of names") as transaction:
            current = KnowledgeBase.open(kb.path)
            try:
                return open_trie(current, fingerprint=fingerprint)
            except BioelError:
                about = vars(build_trie(current, to_pieces)) | {"kb": current.fingerprint}
                columns = {name: about.pop(name) for name in TRIE_COLUMNS}
                pieces = serialized(columns, **about, checksums=checksums_of(columns))
                transaction.put(new_home("tries", fingerprint), pieces)
            return open_trie(current, fingerprint=fingerprint)
    except OSError as error:
        raise BioelError(Errors.B182.format(path=kb.where, error=error)) from error


def open_trie(kb: KnowledgeBase, *, fingerprint: str) -> NameTrie:
    """Memory-map the trie with this word-piece fingerprint. This takes milliseconds at any size.

    RAISES BioelError: [B281] if there is no readable trie of the current names, [B033] if an array
        is missing or unknown, [B024] if an array of up to 16 MB is damaged.
    """
    for path, raw in reversed(kb.files().items()):
        if path.startswith(f"tries/{fingerprint}.") and kb_of(raw) == kb.fingerprint:
            file = TensorFile(raw, Origin(kb.where, path))
            file.check(TRIE_COLUMNS, Errors.B033, up_to=MEDIUM)
            fields: dict[str, Any] = {**file.arrays, **file.about}
            del fields["kb"]
            return NameTrie(**fields)
    raise BioelError(ContextualErrors.B281.format(path=kb.where))


# Maximum number of mentions and of padded word pieces per batch; both limit memory use.
_MENTIONS_PER_SEARCH, _PIECES_PER_SEARCH = 128, 8192


class GeneratedNames(NamedTuple):
    """Generated names, sorted by mention and then best first. Each field has shape (n,).

    mention (IntArray): Number of the mention.
    leaf (IntArray): Trie leaf that the name ends at.
    score (FloatArray): Mean log-probability of the pieces, including the end piece.
    """

    mention: IntArray
    leaf: IntArray
    score: FloatArray


def generate_names(
    model: Seq2SeqModel, trie: NameTrie, mentions: Sequence[MarkedMention]
) -> tuple[GeneratedNames, int]:
    """Generate names for mentions, choosing only from the names in a trie.

    RETURNS (tuple): The names, and the number of mentions that were truncated to fit the model.
    """
    pieces, beams = model.attrs["pieces"], model.attrs["beams"]
    (flat, lengths), prompts = pieces.sources(mentions), pieces.prompts(mentions)
    backbone, device = get_network(model).backbone, device_of(model.get_ref("network"))

    def search(batch: IntArray) -> GeneratedNames:
        prompts_of_batch = np.array([prompts[i] for i in batch.tolist()])
        ids, n, rows, prompt = to_tensors((flat, lengths, batch, prompts_of_batch), device)
        positions, inside = padded_positions(n, rows)
        names = beam_search(backbone, trie, ids[positions], inside, prompt, beams=beams)
        return names._replace(mention=batch[names.mention])

    batches = _search_batches(np.array([len(prompt) for prompt in prompts]), lengths)
    with one_thread_each(on_gpu=is_on_gpu(model)) as parallel_map:
        generated = chain(*parallel_map(partial(in_halves, search), batches))
        return _sort_names(list(generated)), int(pieces.are_cut(mentions).sum())


def _search_batches(prompt_lengths: IntArray, lengths: IntArray) -> Iterator[IntArray]:
    """Yield batches of mentions with prompts of equal length and sources of similar length."""
    batch: list[int] = []
    for i in np.lexsort((lengths, prompt_lengths)).tolist():
        n_pieces = (len(batch) + 1) * lengths[i]
        is_full = len(batch) == _MENTIONS_PER_SEARCH or n_pieces > _PIECES_PER_SEARCH
        if batch and (is_full or prompt_lengths[i] != prompt_lengths[batch[0]]):
            yield np.array(batch)
            batch = []
        batch.append(i)
    if batch:
        yield np.array(batch)


def _sort_names(parts: Sequence[GeneratedNames]) -> GeneratedNames:
    """Concatenate names and sort them by mention, best first; ties go to the lower leaf."""
    empty = GeneratedNames(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    mention, leaf, score = map(np.concatenate, zip(empty, *parts, strict=True))
    order = np.lexsort((leaf, -score, mention))
    return GeneratedNames(mention[order], leaf[order], score[order])


@torch.inference_mode()
def beam_search(
    backbone: PreTrainedModel,
    trie: NameTrie,
    sources: Tensor,
    inside: Tensor,
    prompts: Tensor,
    *,
    beams: int,
) -> GeneratedNames:
    """Generate names for mentions whose prompts have the same length.

    Each step keeps the best prefixes for each mention. Ties go to the better beam, then to the
    lower piece. A completed prefix is a name and no longer takes up a beam; a mention is finished
    when it has `beams` names or no prefixes left. Probabilities are computed over all pieces,
    including pieces that the trie does not allow.

    sources (Tensor): Piece ids of mentions in their contexts, padded. Shape (n, length).
    inside (Tensor): False at padding. Shape (n, length).
    prompts (Tensor): Pieces that the decoder begins with. Shape (n, n_prompt).
    """
    encoded = backbone.get_encoder()(input_ids=sources, attention_mask=inside.long())[0]
    decoder = _Decoder(backbone, encoded, inside)
    n = len(sources)
    n_free = np.full(n, beams)  # unfinished beams for each mention
    prefixes = _Prefixes(np.arange(n), np.arange(n), np.zeros(n, np.int64), np.zeros(n, np.float32))
    finished: list[GeneratedNames] = []
    pieces, length = prompts, 0
    while len(prefixes.owner):
        length += 1
        longer = _continuations(trie, decoder(pieces), prefixes)
        longer = longer.take(_best_prefixes(longer, n_free))
        ends = trie.are_leaves(longer.node)
        names, unfinished = longer.take(np.flatnonzero(ends)), longer.take(np.flatnonzero(~ends))
        finished.append(GeneratedNames(names.owner, names.node, names.total / np.float32(length)))
        np.subtract.at(n_free, names.owner, 1)
        same = np.array_equal(unfinished.owner, prefixes.owner)
        decoder.reorder(unfinished.beam, same_owners=same)
        prefixes = unfinished
        pieces = torch.from_numpy(trie.pieces_at(prefixes.node))[:, None].to(prompts.device)
    return _sort_names(finished)


class _Decoder:
    """Decoder with a cache. Each row is a beam; the beams for a mention are consecutive."""

    def __init__(self, backbone: PreTrainedModel, encoded: Tensor, inside: Tensor) -> None:
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        self._backbone = backbone
        self._encoded, self._inside = encoded, inside.long()
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

    def __call__(self, pieces: Tensor) -> Tensor:
        """Feed in new pieces, shape (n_rows, n_new), and return the next piece's logits."""
        output = self._backbone(
            encoder_outputs=(self._encoded,),
            attention_mask=self._inside,
            decoder_input_ids=pieces,
            past_key_values=self._cache,
            use_cache=True,
        )
        return output.logits[:, -1].float()

    def reorder(self, origin: IntArray, *, same_owners: bool) -> None:
        """Reorder the rows of the cache.

        origin (IntArray): Old row that each new row is copied from. Shape (n_rows,).
        same_owners (bool): Whether the new rows belong to the same mentions as before. If so, the
            cached keys and values of the sources are left unchanged.
        """
        rows: Any = torch.from_numpy(origin).to(self._inside.device)
        self._cache.self_attention_cache.reorder_cache(rows)
        if not same_owners:
            self._cache.cross_attention_cache.reorder_cache(rows)
            self._inside = self._inside[rows]
            # Once keys and values are in the cache, only the shape of `_encoded` is used.
            self._encoded = self._encoded[:1].expand(len(rows), -1, -1)


class _Prefixes(NamedTuple):
    """Name prefixes, grouped by mention. Each field has shape (n,)."""

    owner: IntArray  # index of the mention
    beam: IntArray  # row of the shorter prefix that this prefix extends
    node: IntArray  # trie node
    total: FloatArray  # total log-probability

    def take(self, rows: IntArray) -> _Prefixes:
        return _Prefixes(self.owner[rows], self.beam[rows], self.node[rows], self.total[rows])

    @property
    def rank_in_mention(self) -> IntArray:
        """Position of each prefix among its mention's prefixes."""
        return np.arange(len(self.owner)) - np.searchsorted(self.owner, self.owner)


def _continuations(trie: NameTrie, logits: Tensor, prefixes: _Prefixes) -> _Prefixes:
    """Extend each prefix with every next piece that the trie allows."""
    indptr, child = trie.children(prefixes.node)
    row = np.repeat(np.arange(len(prefixes.node)), np.diff(indptr))
    positions = torch.from_numpy(row * logits.shape[1] + trie.pieces_at(child)).to(logits.device)
    # log_softmax would compute the whole table, but only a few entries are needed.
    normalizer = prefixes.total - logits.logsumexp(dim=1).cpu().numpy()
    total = logits.flatten()[positions].cpu().numpy() + normalizer[row]
    return _Prefixes(prefixes.owner[row], row, child, total)


def _best_prefixes(prefixes: _Prefixes, n_free: IntArray) -> IntArray:
    """Return the rows of each mention's `n_free` best prefixes, best first; ties stay in order."""
    owner, total, max_free = prefixes.owner, prefixes.total, int(n_free.max(initial=1))
    counts = np.bincount(owner, minlength=len(n_free))
    table = np.full((len(counts), max(max_free, int(counts.max()))), -np.inf, dtype=np.float32)
    table[owner, prefixes.rank_in_mention] = total
    threshold = torch.from_numpy(table).topk(max_free, dim=1).values[:, -1].numpy()
    rows = np.flatnonzero(total >= threshold[owner])
    rows = rows[np.lexsort((-total[rows], owner[rows]))]
    rank = np.arange(len(rows)) - np.searchsorted(owner[rows], owner[rows])
    return rows[rank < n_free[owner[rows]]]
