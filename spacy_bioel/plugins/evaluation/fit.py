"""Choose settings by grid search, and fit evidence weights, on development documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from spacy_bioel.batch import Batch
from spacy_bioel.doc import add_gold, split_kb_id
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import offsets_of
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.given import DOCS_PER_BATCH
from spacy_bioel.linking.link import rank_by_string
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import require_linker
from spacy_bioel.models.fusion import Fusion, softmax_by_group
from spacy_bioel.pipe import with_token_vectors
from spacy_bioel.plugins.evaluation.evaluate import percent_of
from spacy_bioel.scoring.protocols import Counts
from spacy_bioel.types import AnnotatedText, DoubleArray, IntArray, Link

Value = float | bool | str
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fold:
    """Indices of the documents to fit on, and of the held-out documents to measure on."""

    fitting: IntArray
    held_out: IntArray


def document_folds(n_documents: int, *, seed: int = 0) -> list[Fold]:
    """Split documents into reproducible folds; return [] for a single document."""
    if n_documents < 2:
        return []
    n_folds = min(FOLDS, n_documents)
    fold = np.random.default_rng(seed).permutation(n_documents) % n_folds
    return [Fold(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(n_folds)]


def choose_setting(
    settings: Sequence[dict[str, Value]], counts: Sequence[Sequence[Counts]], *, protocol: str
) -> dict[str, Value]:
    """Choose the settings with the highest F1; ties go to the earliest.

    The first settings are kept if the cross-fitted choice is worse: on a few documents, other
    settings may be best by chance.

    settings (Sequence): Settings to choose from, in order of preference.
    counts (Sequence): Each document's counts, for each of the settings.
    """

    def best_on(documents: Sequence[int]) -> int:
        f1 = [percent_of([rows[i] for i in documents], protocol, "f1") for rows in counts]
        return int(np.argmax(f1))

    best = best_on(range(len(counts[0])))
    held_out: list[Counts] = []
    for fold in document_folds(len(counts[0])):
        best_counts = counts[best_on(fold.fitting.tolist())]
        held_out += [best_counts[i] for i in fold.held_out.tolist()]
    if held_out and percent_of(held_out, protocol, "f1") < percent_of(counts[0], protocol, "f1"):
        best = 0
    return dict(settings[best])


def wrong_names(
    names: Iterable[Sequence[tuple[str, bool]]], n_gold: int, *, min_wrong: int
) -> list[str]:
    """Return the names whose exclusion raises F1: their precision is less than half of F1.

    names (Iterable): For each document, the names that were found, and whether each is correct.
    min_wrong (int): How often a name must be wrong to be excluded; 0: no name is excluded.
    """
    if not min_wrong:
        return []
    n_right, n_found = Counter[str](), Counter[str]()
    for name, is_right in chain.from_iterable(names):
        n_found[name] += 1
        n_right[name] += is_right
    half_f1 = n_right.total() / max(n_found.total() + n_gold, 1)
    return [
        name
        for name, n in n_found.items()
        if n - n_right[name] >= min_wrong and n_right[name] / n < half_f1
    ]


_Gold = tuple[int, str, str, tuple[str, ...]]  # document index, query, label, ids


@dataclass(frozen=True)
class Development:
    """Evidence for gold mentions' candidates, used to fit weights.

    features (NDArray[float32]): Features of all candidates. Shape (n, len(FEATURES)).
    rows (Sequence): For each mention, the rows of its candidates.
    right (Sequence): For each mention, whether each of these candidates is correct.
    strings (Sequence[str]): Query of each mention.
    documents (Sequence[int]): Document index of each mention.
    """

    features: NDArray[np.float32]
    rows: Sequence[NDArray[np.int64]]
    right: Sequence[NDArray[np.bool_]]
    strings: Sequence[str]
    documents: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, mentions: Iterable[int]) -> Development:
        """Select mentions by index."""
        indices = list(mentions)
        columns: list[Any] = [self.rows, self.right, self.strings, self.documents]
        return Development(self.features, *([column[i] for i in indices] for column in columns))

    def for_documents(self, documents: Iterable[int]) -> Development:
        """Select the mentions in documents with the given indices."""
        wanted = set(documents)
        return self.take(i for i, doc_index in enumerate(self.documents) if doc_index in wanted)


def merge_development(parts: Sequence[Development]) -> Development:
    """Concatenate mentions from several corpora, or several sets of evidence for one corpus.

    Documents are numbered consecutively over all parts.
    """
    row_offsets = offsets_of([len(part.features) for part in parts]).tolist()
    offsets = offsets_of([max(part.documents, default=-1) + 1 for part in parts]).tolist()
    return Development(
        np.concatenate([part.features for part in parts]),
        [rows + n for part, n in zip(parts, row_offsets, strict=False) for rows in part.rows],
        [right for part in parts for right in part.right],
        [string for part in parts for string in part.strings],
        [index + n for part, n in zip(parts, offsets, strict=False) for index in part.documents],
    )


def gold_docs(nlp: Language, texts: Iterable[AnnotatedText]) -> list[Doc]:
    """Tokenise documents, and add their gold mentions to the span group that the linker expects.

    Mentions that begin or end inside a token are widened to whole tokens.
    """
    key, docs = require_linker(nlp).cfg["gold_key"], []
    for text in texts:
        doc = nlp.make_doc(text.text)
        add_gold(doc, text, widen=True, key=key)
        docs.append(doc)
    return docs


def _gold_spans(linker: Linker, doc: Doc) -> list[Span]:
    return list(doc.spans.get(linker.cfg["gold_key"], ()))


def gather_development(linker: Linker, docs: Iterable[Doc]) -> Development:
    """Gather evidence from candidate generation for the gold mentions in documents."""
    gold_by_generator: dict[CandidateGenerator, list[_Gold]] = {}
    settings = linker.check_settings()
    for doc_index, doc in enumerate(docs):
        mentions = Batch.of([doc], [_gold_spans(linker, doc)], settings)
        mentions = linker.generator.rules.prepare(mentions)
        for span, query in zip(mentions.spans, mentions.strings, strict=True):
            if query:
                gold = (doc_index, query, span.label_, split_kb_id(span.kb_id_))
                generator = linker.generator.for_label(span.label_)
                gold_by_generator.setdefault(generator, []).append(gold)
    gold_by_generator = gold_by_generator or {linker.generator: []}
    parts = [_development(generator, gold) for generator, gold in gold_by_generator.items()]
    documents = [doc_index for part in parts for doc_index in part.documents]
    return replace(merge_development(parts), documents=documents)


def _development(generator: CandidateGenerator, mentions: Sequence[_Gold]) -> Development:
    queries = list(dict.fromkeys(query for _, query, *_ in mentions))
    candidates = generator.candidate_table(queries)
    first = np.searchsorted(candidates.query, np.arange(len(queries) + 1))
    rows_of_query = {q: np.arange(first[i], first[i + 1]) for i, q in enumerate(queries)}
    rows, right = [], []
    for _, query, label, gold_ids in mentions:
        query_rows = rows_of_query[query]
        concepts = candidates.concept[query_rows]
        is_allowed = generator.allowed(concepts, [label], np.zeros_like(concepts))
        rows.append(query_rows[is_allowed])
        right.append(np.isin(concepts[is_allowed], generator.kb.find_all(gold_ids)))
    strings = [query for _, query, _, _ in mentions]
    documents = [doc_index for doc_index, _, _, _ in mentions]
    return Development(candidates.features, rows, right, strings, documents)


def gather_contextual_development(nlp: Language, docs: Sequence[Doc]) -> Development:
    """Gather evidence from a contextual linker for the gold mentions in documents."""
    linker = require_linker(nlp)
    rescorer, settings, generator = linker.rescorer, linker.check_settings(), linker.generator
    assert rescorer is not None  # the linker is contextual
    no_features = np.zeros((0, len(rescorer.features)), np.float32)
    parts = [Development(no_features, [], [], [], [])]
    for batch in minibatch(docs, size=DOCS_PER_BATCH):
        # Copy the documents, so that their token vectors are not kept in memory.
        copies = list(with_token_vectors(nlp, [doc.copy() for doc in batch]))
        mentions = Batch.of(copies, [_gold_spans(linker, doc) for doc in copies], settings)
        if not len(mentions):
            continue
        mentions = rank_by_string(generator.rules.prepare(mentions), generator)
        scores = rescorer.score(generator, mentions)
        first = np.searchsorted(scores.mention, np.arange(len(mentions) + 1))
        rows, right, n = [], [], mentions.n_wholes
        for i, span in enumerate(mentions.spans[:n]):
            rows.append(np.arange(first[i], first[i + 1]))
            gold_rows = generator.kb.find_all(split_kb_id(span.kb_id_))
            right.append(np.isin(scores.concept[rows[i]], gold_rows))
        strings, owners = mentions.strings[:n], mentions.owners[:n]
        parts.append(Development(scores.features, rows, right, strings, owners))
    documents = [i for i, doc in enumerate(docs) for _ in _gold_spans(linker, doc)]
    return replace(merge_development(parts), documents=documents)


def name_of(link: Link) -> str:
    """Return the name that a mention matched, or "" if it has no candidates."""
    return link.candidates[0].name if link.candidates else ""


def judge_names(
    texts: Sequence[AnnotatedText],
    links: Iterable[Sequence[Link]],
    canonical: Callable[[str], str],
) -> list[list[tuple[str, bool]]]:
    """Return the names linked in each document, and whether each link is correct."""
    judged = []
    for text, of_doc in zip(texts, links, strict=True):
        gold = {(m.start, m.end, canonical(id)) for m in text.mentions for id in m.ids}
        places = [{(link.start, link.end, id) for id in link.ids} for link in of_doc]
        pairs = zip(of_doc, places, strict=True)
        judged.append([(name_of(link), not gold.isdisjoint(ids)) for link, ids in pairs if ids])
    return judged


# Strength of the prior: a weight that differs from the prior by one costs as much as a log-loss of
# one on each of this many mentions.
_PRIOR_MENTIONS = 80.0
_MAX_MENTIONS_TO_CHOOSE_PRIOR = 1000


def require_scipy() -> None:
    """Check that SciPy is installed. RAISES BioelError: [B040] if it is not."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B040.format(error=error)) from error


def fit_fusion(
    development: Development,
    *,
    prior: Fusion | None = None,
    n_hidden: int = 12,
    l2: float = 0.02,
    seed: int = 0,
) -> Fusion:
    """Fit weights to maximise the probability of correct candidates, or of NIL if none is correct.

    prior (Fusion | None): Weights fitted on other corpora, used as initial weights and as the
        centre of the penalty, because a few hundred mentions cannot determine all weights. None:
        the initial weights are random.
    n_hidden, l2, seed: Size of the hidden layer, penalty and random seed, used without a prior.
    """
    require_scipy()
    from scipy.optimize import minimize

    features = development.features
    mean, spread = features.mean(0, dtype=float), features.std(0, dtype=float)
    if prior is not None:
        mean, spread, n_hidden = prior.mean, prior.scale, len(prior.output)
    # Do not scale a constant feature, such as "has_alias_table" in one corpus: divided by almost
    # zero, it would dominate as soon as it had another value, and `to_json` would round the
    # scale to 0.
    scale = np.where(spread > 1e-3, spread, 1.0)
    loss = _FusionLoss((features - mean) / scale, development, l2=l2, n_hidden=n_hidden)
    if prior is None:
        start = np.random.default_rng(seed).standard_normal(loss.n_weights) * 0.1
    else:
        start = loss.centre = prior.weights()
        loss.l2 = _PRIOR_MENTIONS / len(development)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    hidden, hidden_bias, output, direct, bias = loss.split(best.x)
    return Fusion(mean, scale, hidden, hidden_bias, output, direct, float(bias[0]))


def fit_with_best_prior(development: Development, priors: Sequence[Fusion | None]) -> Fusion:
    """Fit weights using the prior under which held-out mentions are most likely.

    The default weights are a poor prior for some corpora, such as patients' own words.
    Mentions with identical strings go into the same fold, because their evidence is identical.

    priors (Sequence): Weights fitted on other corpora, to choose from; None: no prior.
    """
    # A sample is enough: the more mentions there are, the less the choice of prior matters.
    sample = np.random.default_rng(0).permutation(len(development))[:_MAX_MENTIONS_TO_CHOOSE_PRIOR]
    strings = np.array([development.strings[i] for i in sample], dtype=object)
    unique_strings, string_index = np.unique(strings, return_inverse=True)
    fold = (np.random.default_rng(0).permutation(len(unique_strings)) % FOLDS)[string_index]
    losses = [0.0] * len(priors)
    for number in sorted(set(fold.tolist())) if fold.any() else []:
        fitting = development.take(sample[fold != number])
        held_out = development.take(sample[fold == number])
        for i, prior in enumerate(priors):
            losses[i] += log_loss(fit_fusion(fitting, prior=prior), held_out)
    return fit_fusion(development, prior=priors[int(np.argmin(losses))])


def log_loss(fusion: Fusion, development: Development) -> float:
    """Return the summed negative log-likelihood of mentions under fitted weights."""
    z = (development.features - fusion.mean) / fusion.scale
    loss = _FusionLoss(z, development, l2=0.0, n_hidden=len(fusion.output))
    return loss(fusion.weights())[0] * len(development)


class _FusionLoss:
    """Mean negative log-likelihood and its gradient, as a function of a weight vector.

    Mentions with the same evidence and the same correct candidates, such as repetitions of a
    string, are evaluated only once.
    """

    def __init__(
        self, z: DoubleArray, development: Development, *, l2: float, n_hidden: int
    ) -> None:
        mentions = zip(development.rows, development.right, strict=True)
        keys = [(rows.tobytes(), right.tobytes()) for rows, right in mentions]
        once = development.take(list({key: i for i, key in enumerate(keys)}.values()))
        d, rows = z.shape[1], once.rows
        self.z, self.right = z[np.concatenate(rows)], np.concatenate(once.right)
        self.groups = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
        # Proportion of all mentions that each group represents.
        self.weight_of_group = np.array(list(Counter(keys).values())) / len(keys)
        self.l2 = l2
        self.centre: DoubleArray | float = 0.0  # weights with a penalty of 0
        self._shapes = [(d, n_hidden), (n_hidden,), (n_hidden,), (d,), (1,)]
        self.n_weights = sum(int(np.prod(shape)) for shape in self._shapes)
        self._has_right = np.bincount(self.groups, self.right, len(rows)) > 0

    def split(self, weights: DoubleArray) -> list[DoubleArray]:
        """Split the weight vector into `Fusion` parameters."""
        parts = np.split(weights, np.cumsum([int(np.prod(s)) for s in self._shapes])[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def __call__(self, weights: DoubleArray) -> tuple[float, DoubleArray]:
        hidden, hidden_bias, output, direct, bias = self.split(weights)
        active = np.tanh(self.z @ hidden + hidden_bias)
        probability = softmax_by_group(active @ output + self.z @ direct + bias, self.groups)
        total = np.bincount(self.groups, probability, len(self.weight_of_group))
        right = np.bincount(self.groups, probability * self.right, len(self.weight_of_group))
        likelihood = np.maximum(np.where(self._has_right, right, 1 - total), 1e-9)
        penalty = self.l2 * ((weights - self.centre) ** 2).sum()
        value = -self.weight_of_group @ np.log(likelihood) + penalty
        wanted = probability * self.right / likelihood[self.groups]
        d_scores = probability - wanted * self._has_right[self.groups]
        d_scores *= self.weight_of_group[self.groups]
        d_active = np.outer(d_scores, output) * (1 - active**2)
        hidden_parts = [(self.z.T @ d_active).ravel(), d_active.sum(0), active.T @ d_scores]
        direct_parts = [self.z.T @ d_scores, d_scores.sum(keepdims=True)]
        gradient = np.concatenate(hidden_parts + direct_parts)
        gradient += 2 * self.l2 * (weights - self.centre)
        return float(value), gradient
