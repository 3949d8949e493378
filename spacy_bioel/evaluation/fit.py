"""Selection of settings by metrics of `evaluation.protocols`, with cross-fitting by document.

Development mentions: features and gold candidates on which the fusion is fitted.

Fitting of the fusion, the weights of the evidence, on development mentions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from spacy_bioel.doc import add_gold, split_kb_id
from spacy_bioel.entities import Mentions
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.evaluation.evaluate import percent
from spacy_bioel.evaluation.protocols import Counts, get_protocol
from spacy_bioel.evaluation.run import link_open
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.decide import rank_mentions
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import find_linker
from spacy_bioel.models.fusion import Fusion, softmax_by_group
from spacy_bioel.pipe import with_token_vectors
from spacy_bioel.types import AnnotatedText, DoubleArray, IntArray

Value = float | bool | str
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fold:
    """Indices of the documents to fit on and of the held-out documents to measure on."""

    fitting: IntArray
    held_out: IntArray


@dataclass(frozen=True, slots=True)
class Tuned:
    """Settings chosen on development documents, with their fitted and cross-fitted figures.

    what (str): Name of the pipe.
    chosen (dict): Its chosen settings, by name.
    protocol, metric (str): Protocol and metric that were maximised, as in `bioel evaluate`.
    fitted (float | None): Percentage on the documents used for the choice, which is optimistic.
        None: not measured yet, see `tune`.
    cross_fitted (float | None): The same, each document measured with the settings chosen on the
        other folds; settings of earlier steps are not chosen again. None: only one document.
    """

    what: str
    chosen: dict[str, Value]
    protocol: str
    metric: str
    fitted: float | None
    cross_fitted: float | None

    def to_json(self) -> dict[str, Any]:
        figures = {"fitted": self.fitted, "cross_fitted": self.cross_fitted}
        return asdict(self) | {n: x if x is None else round(x, 2) for n, x in figures.items()}


def document_folds(n_documents: int, *, seed: int = 0) -> list[Fold]:
    """Split documents into folds, deterministically; no folds for a single document."""
    if n_documents < 2:
        return []
    n_folds = min(FOLDS, n_documents)
    fold = np.random.default_rng(seed).permutation(n_documents) % n_folds
    return [
        Fold(np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        for number in range(n_folds)
    ]


def choose(
    what: str,
    settings: Sequence[dict[str, Value]],
    counts: Sequence[Sequence[Counts]],
    *,
    protocol: str,
    folds: Sequence[Fold],
) -> Tuned:
    """Choose the settings of a pipe with the highest F1; at a tie, the first.

    settings (Sequence): At least one, in the order of preference.
    counts (Sequence): For each of the settings, the counts of each document.
    folds (Sequence[Fold]): Folds of the documents; empty: no cross-fitting.
    """

    def best_on(documents: Iterable[int]) -> int:
        chosen = list(documents)
        found = [percent_of([rows[i] for i in chosen], protocol, "f1") for rows in counts]
        return int(np.argmax(found))

    best = best_on(range(len(counts[0])))
    fitted = percent_of(counts[best], protocol, "f1")
    held_out: list[Counts] = []
    for fold in folds:
        of_others = counts[best_on(fold.fitting.tolist())]
        held_out += [of_others[i] for i in fold.held_out.tolist()]
    cross_fitted = percent_of(held_out, protocol, "f1") if folds else None
    return Tuned(what, dict(settings[best]), protocol, "f1", fitted, cross_fitted)


def wrong_names(
    found: Iterable[Sequence[tuple[str, bool]]], n_gold: int, *, least: int
) -> list[str]:
    """Choose names without which F1 is higher: they are right less often than half of F1.

    found (Iterable): Of each document its names, and whether each is right.
    least (int): Times that a name is found and wrong; 0: no name is left out.
    """
    right, times = Counter[str](), Counter[str]()
    for name, is_right in chain.from_iterable(found):
        times[name] += 1
        right[name] += is_right
    half = right.total() / max(times.total() + n_gold, 1)
    return [
        name
        for name, n in times.items()
        if least and n - right[name] >= least and right[name] / n < half
    ]


def percent_of(counts: Sequence[Counts], protocol: str, metric: str) -> float:
    """Compute a metric of a protocol, in percent, from the summed counts of documents."""
    how = get_protocol(protocol)[1].metrics[metric]
    names = {name for ratio in how.ratios for name in ratio}
    sums = {name: np.array([sum(row[name] for row in counts)], float) for name in names}
    return float(percent(how, sums)[0])


_BATCH = 32  # documents that are read at once
_Gold = tuple[int, str, str, tuple[str, ...]]  # number of the document, query, label, ids


@dataclass(frozen=True)
class Development:
    """Evidence for the candidates of gold mentions.

    features (NDArray[float32]): Features of all candidates. Shape (n, len(FEATURES)).
    rows (Sequence): For each mention, the rows of its candidates.
    right (Sequence): For each mention, whether each of these candidates is right.
    strings (Sequence[str]): Query of each mention.
    documents (Sequence[int]): Index of the document of each mention.
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
        chosen = list(mentions)
        columns: tuple[Sequence[Any], ...] = (self.rows, self.right, self.strings, self.documents)
        return Development(self.features, *([column[i] for i in chosen] for column in columns))

    def of_documents(self, numbers: Iterable[int]) -> Development:
        """Select the mentions of some documents."""
        wanted = set(numbers)
        return self.take(i for i, number in enumerate(self.documents) if number in wanted)


def pool(parts: Sequence[Development]) -> Development:
    """Concatenate the mentions of several corpora, or of one corpus with several sets of evidence.

    Documents are numbered consecutively over all parts.
    """
    rows: list[NDArray[np.int64]] = []
    documents: list[int] = []
    n_features = n_documents = 0
    for part in parts:
        rows += [own + n_features for own in part.rows]
        documents += [n_documents + number for number in part.documents]
        n_features += len(part.features)
        n_documents += max(part.documents, default=-1) + 1
    return Development(
        np.concatenate([part.features for part in parts]),
        rows,
        [right for part in parts for right in part.right],
        [string for part in parts for string in part.strings],
        documents,
    )


def linker_of(nlp: Language) -> Linker:
    """Return the linker of a pipeline that has one."""
    linker = find_linker(nlp)
    assert linker is not None
    return linker


def gold_docs(nlp: Language, texts: Iterable[AnnotatedText]) -> list[Doc]:
    """Tokenise documents and add their gold mentions in the linker's group `gold_key`.

    Mentions are aligned by characters; a mention that cuts a token is widened to whole tokens.
    """
    key, docs = linker_of(nlp).cfg["gold_key"], []
    for text in texts:
        docs.append(doc := nlp.make_doc(text.text))
        add_gold(doc, text, widen=True, key=key)
    return docs


def _gold_spans(linker: Linker, doc: Doc) -> list[Span]:
    key = linker.cfg["gold_key"]
    return list(doc.spans[key]) if key in doc.spans else []


def gather_development(linker: Linker, docs: Iterable[Doc]) -> Development:
    """Gather the evidence of candidate generation for the mentions in documents' `gold_key`."""
    of_generators: dict[CandidateGenerator, list[_Gold]] = {}
    settings = linker.check_settings()
    for number, doc in enumerate(docs):
        mentions = Mentions.of([doc], [_gold_spans(linker, doc)], settings)
        for span, whole in zip(mentions.spans, mentions.strings, strict=True):
            if whole:
                gold = (number, whole, span.label_, split_kb_id(span.kb_id_))
                generator = linker.generator.for_label(span.label_)
                of_generators.setdefault(generator, []).append(gold)
    parts = [_development(*mentions) for mentions in of_generators.items()]
    if len(parts) < 2:
        return parts[0] if parts else _development(linker.generator, [])
    return replace(pool(parts), documents=[number for part in parts for number in part.documents])


def _development(generator: CandidateGenerator, mentions: Sequence[_Gold]) -> Development:
    queries = list(dict.fromkeys(query for _, query, *_ in mentions))
    candidates = generator.candidate_table(queries)
    first = np.searchsorted(candidates.query, np.arange(len(queries) + 1))
    rows_of = {q: np.arange(first[i], first[i + 1]) for i, q in enumerate(queries)}
    rows = []
    for _, query, label, _ in mentions:
        concepts = candidates.concept[rows_of[query]]
        rows.append(rows_of[query][generator.allowed(concepts, [label], np.zeros_like(concepts))])
    right = [
        np.isin(candidates.concept[r], generator.kb.find_all(gold))
        for r, (*_, gold) in zip(rows, mentions, strict=True)
    ]
    strings, documents = [q for _, q, *_ in mentions], [number for number, *_ in mentions]
    return Development(candidates.features, rows, right, strings, documents)


def gather_reading(nlp: Language, docs: Sequence[Doc]) -> Development:
    """Gather the evidence of a contextual linker, as `gather_development` does of the others."""
    linker, parts = linker_of(nlp), []
    for batch in minibatch(docs, size=_BATCH):
        # Copies, so that their token vectors do not stay in memory.
        copies = list(with_token_vectors(nlp, [doc.copy() for doc in batch]))
        spans = [_gold_spans(linker, doc) for doc in copies]
        parts.append(_read_batch(linker, copies, spans))
    numbers = [number for number, doc in enumerate(docs) for _ in _gold_spans(linker, doc)]
    return replace(pool(parts), documents=numbers)


def _read_batch(
    linker: Linker, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]
) -> Development:
    """Gather the evidence for the gold mentions of a batch of documents with token vectors."""
    mentions = Mentions.of(docs, spans, linker.check_settings())
    rescorer = linker.rescorer
    assert rescorer is not None  # the linker is contextual
    if not len(mentions):
        return Development(np.zeros((0, len(rescorer.features)), np.float32), [], [], [], [])
    generator = linker.generator
    given = rank_mentions(generator, mentions, coherence=linker.cfg["coherence"])
    reading = rescorer.read(generator, mentions, given)
    ids = [split_kb_id(span.kb_id_) for span in mentions.spans]
    starts = np.searchsorted(reading.mention, np.arange(len(ids) + 1))
    rows = [np.arange(*pair) for pair in pairwise(starts.tolist())]
    right = [
        np.isin(reading.concept[r], generator.kb.find_all(gold))
        for r, gold in zip(rows, ids, strict=True)
    ]
    return Development(reading.features, rows, right, mentions.strings, mentions.owners)


def gather_names(nlp: Language, texts: Sequence[AnnotatedText]) -> list[list[tuple[str, bool]]]:
    """The names that each document is found to have, and whether each is right."""
    linker, found = linker_of(nlp), []
    for text, links in zip(texts, link_open(nlp, linker, texts), strict=True):
        gold = {
            (mention.start, mention.end, linker.kb.canonical(id))
            for mention in text.mentions
            for id in mention.ids
        }
        linked = [link for link in links if link.ids]
        right = [any((link.start, link.end, id) in gold for id in link.ids) for link in linked]
        names = [link.candidates[0].name for link in linked]
        found.append(list(zip(names, right, strict=True)))
    return found


# Weight of the prior: it equals that of this many mentions for a weight that differs by one.
_PRIOR_MENTIONS = 80.0
# Maximum number of mentions for the choice of the initial weights.
_CHOOSING_MENTIONS = 1000


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
    """Fit a fusion: maximise the probability of right candidates, and of NIL where none is right.

    prior (Fusion | None): Weights fitted on other corpora, used as initial weights and as centre of
        the penalty: a few hundred mentions are too few to fit all weights. None: random ones.
    n_hidden, l2: Size of the hidden layer and strength of the penalty, without a prior.
    """
    require_scipy()
    from scipy.optimize import minimize

    features = development.features
    mean, spread = features.mean(0, dtype=float), features.std(0, dtype=float)
    if prior is not None:
        mean, spread, n_hidden = prior.mean, prior.scale, len(prior.output)
    # A feature without variance, such as "trained" in one corpus, is not scaled: divided by almost
    # zero, it would dominate wherever it differs, and `to_json` would round the scale to 0.
    scale = np.where(spread > 1e-3, spread, 1.0)
    loss = _Loss((features - mean) / scale, development, l2=l2, n_hidden=n_hidden)
    if prior is None:
        start = np.random.default_rng(seed).standard_normal(loss.n_weights) * 0.1
    else:
        start = loss.centre = prior.weights()
        loss.l2 = _PRIOR_MENTIONS / len(development)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    hidden, hidden_bias, output, direct, bias = loss.split(best.x)
    return Fusion(mean, scale, hidden, hidden_bias, output, direct, float(bias[0]))


def fit_nearest(development: Development, priors: Sequence[Fusion | None]) -> Fusion:
    """Fit a fusion with the prior under which held-out mentions are most likely.

    The default weights may be a poor prior for some corpora, such as phrases of patients. Mentions
    with equal strings are in one fold, because their evidence is equal.

    priors (Sequence): Priors to choose from, weights of other corpora; None: no prior.
    """
    # With more mentions than these, the prior matters little.
    sample = np.random.default_rng(0).permutation(len(development))[:_CHOOSING_MENTIONS]
    strings = np.array([development.strings[i] for i in sample], dtype=object)
    different, string = np.unique(strings, return_inverse=True)
    fold = (np.random.default_rng(0).permutation(len(different)) % FOLDS)[string]
    losses = [0.0] * len(priors)
    for number in sorted(set(fold.tolist())) if fold.any() else []:
        fitting = development.take(sample[fold != number])
        held_out = development.take(sample[fold == number])
        for i, prior in enumerate(priors):
            losses[i] += log_loss(fit_fusion(fitting, prior=prior), held_out)
    return fit_fusion(development, prior=priors[int(np.argmin(losses))])


def log_loss(fusion: Fusion, development: Development) -> float:
    """Sum of the negative log-likelihood of mentions under a fusion."""
    if not len(development):
        return 0.0
    z = (development.features - fusion.mean) / fusion.scale
    loss = _Loss(z, development, l2=0.0, n_hidden=len(fusion.output))
    return loss(fusion.weights())[0] * len(development)


class _Loss:
    """Mean negative log-likelihood with its gradient, as a function of one vector of weights.

    Mentions with the same evidence and the same right candidates, such as those of a string that is
    often mentioned, are computed once.
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
        self.weight_of_group = np.array(list(Counter(keys).values())) / len(keys)  # of all mentions
        self.l2 = l2
        self.centre: DoubleArray | float = 0.0  # the penalty is on the distance to it
        self._shapes = [(d, n_hidden), (n_hidden,), (n_hidden,), (d,), (1,)]
        self.n_weights = sum(int(np.prod(shape)) for shape in self._shapes)
        self._has_right = np.bincount(self.groups, self.right, len(rows)) > 0

    def split(self, weights: DoubleArray) -> list[DoubleArray]:
        """Split the vector of weights into the parameters of a `Fusion`."""
        parts = np.split(weights, np.cumsum([int(np.prod(s)) for s in self._shapes])[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def __call__(self, weights: DoubleArray) -> tuple[float, DoubleArray]:
        hidden, hidden_bias, output, direct, bias = self.split(weights)
        active = np.tanh(self.z @ hidden + hidden_bias)
        probability = softmax_by_group(active @ output + self.z @ direct + bias, self.groups)
        total = np.bincount(self.groups, probability, len(self.weight_of_group))
        right = np.bincount(self.groups, probability * self.right, len(self.weight_of_group))
        likelihood = np.maximum(np.where(self._has_right, right, 1 - total), 1e-9)
        value = (
            -self.weight_of_group @ np.log(likelihood)
            + self.l2 * ((weights - self.centre) ** 2).sum()
        )
        wanted = probability * self.right / likelihood[self.groups]
        d_scores = probability - wanted * self._has_right[self.groups]
        d_scores *= self.weight_of_group[self.groups]
        d_active = np.outer(d_scores, output) * (1 - active**2)
        parts = [
            self.z.T @ d_active,
            d_active.sum(0),
            active.T @ d_scores,
            self.z.T @ d_scores,
            d_scores.sum(keepdims=True),
        ]
        gradient = np.concatenate([part.ravel() for part in parts])
        gradient += 2 * self.l2 * (weights - self.centre)
        return float(value), gradient
