"""Start training from a trained pipeline, with a corpus's labels and a larger alias table.

spaCy takes over the pipes (`source`), and does not initialize them. Before training, the corpus
labels replace the detector's labels. The last layer has a row of weights for each label; a new
label copies the row of the old label with the same meaning.
"""

# No `from __future__ import annotations`, because spaCy uses the annotations at run time.

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.training import Example
from spacy.util import resolve_dot_names

from spacy_bioel.doc import annotated_labels, gold_spans
from spacy_bioel.errors import LOGGER, BioelError, Errors
from spacy_bioel.kb.bundled import KbSetting, folders_of
from spacy_bioel.kb.folder import label_and_folder
from spacy_bioel.kb.joined import JoinedKnowledgeBase, parts_of
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.linking.validation import KnownIds, check_gold_ids
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.pipe import listens
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors, EvaluationWarnings
from spacy_bioel.settings import DETECTOR, LINKER
from spacy_bioel.types import ScoredSpan

STARTS = "starts"  # key in the pipeline's meta: the label that each label started from
_READER = "spacy-bioel.Corpus.v1"
_MAX_DOCUMENTS = 200  # number of documents searched for mentions to compare labels
_MIN_TAUGHT = 0.02  # minimum probability for learning a span from the pipeline itself
_MIN_OVERLAP = 0.5  # Minimum token overlap, as a share of the longer mention.
# Corpus labels for each usual label, as normalised by `_meaning`.
_SAME_MEANINGS = {
    "chemical": {"drug", "simplechemical", "chemicalentity", "compound", "medication"},
    "disease": {"disorder", "diseaseorphenotypicfeature", "specificdisease", "diseaseclass"},
    "gene": {"protein", "ggp", "geneprotein", "geneorgeneproduct", "geneorprotein"},
    "specie": {"organism", "taxon"},
    "variant": {"mutation", "sequencevariant", "dnamutation", "proteinmutation", "snp"},
}
_MEANINGS = {name: meaning for meaning, names in _SAME_MEANINGS.items() for name in names}


class Start(NamedTuple):
    """The pipeline label that a corpus label starts from (None: from scratch), and the reason."""

    label: str | None
    reason: str


def create_fine_tune_v1(
    *,
    labels: dict[str, str | None] = {},  # noqa: B006  # only read
    keep: bool = False,
    kb: str | list[str] | dict[str, str] | None = None,
    label_types: dict[str, list[str]] = {},  # noqa: B006
) -> Callable[[Language], None]:
    """Registered as `spacy-bioel.FineTune.v1`, for `[initialize.before_init]`: adapts the pipes
    sourced by a config (`source`) to the labels and ids of its training documents.

    Each label of the documents starts from a label of the pipeline: the label with the same name or
    meaning ("Drug": Chemical), or else the label that the pipeline gives to most of its mentions.
    Every choice is reported [W380].

    labels (dict[str, str | None]): Labels of the documents, each with the label that it starts
        from, or null to learn it from scratch. Labels that are not listed are chosen as above.
    keep (bool): Keep the pipeline's other labels. Documents count as not annotated with them, and
        the mentions that the pipeline finds are learned again so that the labels are not
        forgotten. Without `keep`, these labels are dropped.
    kb (str | list | dict | None): "LABEL=FOLDER", or a dict of folders by label: other labels keep
        the knowledge bases that the pipeline has. A folder or a list: for all labels of the
        documents. null: all labels keep theirs. Labels with ids that their knowledge base lacks
        are reported [W383].
    label_types (dict[str, list[str]]): The linker's setting of this name; {}: with `kb`, any types;
        without `kb`, the types that the pipeline has for the labels.
    """
    return partial(_adapt, told=labels, keep=keep, kb=kb, label_types=label_types)


def _adapt(
    nlp: Language,
    *,
    told: Mapping[str, str | None],
    keep: bool,
    kb: KbSetting | None,
    label_types: Mapping[str, list[str]],
) -> None:
    """Adapt the pipes. RAISES BioelError: [B573] if there are none, [B051] if there are no gold
    mentions, [B576] if dev and train share no label, [B575] if `kb` names an unknown label; and
    the errors of `choose_starts` and `Linker.set_kb`."""
    # `spacy debug data` creates an optimizer without resolving the variables in its settings.
    nlp.config["training"]["optimizer"] = nlp.config.interpolate()["training"]["optimizer"]
    taken_over = nlp.meta.get("_sourced_vectors_hashes", {})  # names of sourced pipes
    started = {
        nlp.get_pipe_meta(name).factory: (name, pipe)
        for name, pipe in nlp.components
        if name in taken_over
    }
    name, detector = started.get(DETECTOR, (DETECTOR, None))
    if not isinstance(detector, MentionDetector) or not detector.labels:
        raise BioelError(EvaluationErrors.B573.format(name=name))
    train, dev = _read_corpora(nlp)
    key = detector.cfg["gold_key"]
    own, in_dev = (
        sorted({span.label_ for x in part for span in x.reference.spans.get(key, ())})
        for part in (train, dev)
    )
    known = detector.labels
    if not own:
        raise BioelError(Errors.B051.format(key=key))
    if in_dev and {*own}.isdisjoint(in_dev):
        raise BioelError(EvaluationErrors.B576.format(train=", ".join(own), dev=", ".join(in_dev)))
    if isinstance(kb, str) and label_and_folder(kb)[0]:
        kb = dict([label_and_folder(kb)])
    for label, folder in kb.items() if isinstance(kb, dict) else ():
        if label not in (every := dict.fromkeys([*own, *known])):
            labels_known = ", ".join(every)
            raise BioelError(
                EvaluationErrors.B575.format(label=label, folder=folder, known=labels_known)
            )
    found = {} if listens(detector.model) else _count_found(detector, train[:_MAX_DOCUMENTS])
    starts = choose_starts(own, known, found, told=told)
    for label, start in starts.items():
        if start.label is None and label in told:
            continue
        n = found.get(label, Counter())
        share = n[start.label] / n.total() if n and start.label else 0.0
        message = EvaluationWarnings.W380 if start.label else EvaluationWarnings.W381
        about = {"start": start.label, "reason": start.reason, "share": share}
        LOGGER.warning(message.format(label=label, known=", ".join(known), **about))
    labels = {label: start.label for label, start in starts.items()}
    if keep:
        others = {label: label for label in known if label not in {*labels, *labels.values()}}
        if others and not any(annotated_labels(x.reference, key=key) for x in train):
            for reader in nlp.config["corpora"].values():
                if isinstance(reader, dict) and reader.get("@readers") == _READER:
                    reader["annotates"] = sorted({*own, *in_dev})
            if not listens(detector.model):
                detector.taught = _predict(detector, train, {*others})
        labels |= others
    detector.change_labels(labels)
    nlp.meta.setdefault("bioel", {})[STARTS] = labels  # shown on the model card
    _, linker = started.get(LINKER, ("", None))
    if isinstance(linker, Linker):
        _adapt_linker(linker, labels, kb, {**label_types}, kept={*labels} - {*own})
        _add_mentions(linker, train, only_known=kb is not None)
        _check_linkable(linker, train)


def _read_corpora(nlp: Language) -> list[list[Example]]:
    """Read the training and dev documents. RAISES BioelError: [B572] if there are too few."""
    config = nlp.config.interpolate()
    names = [config["training"][key] for key in ("train_corpus", "dev_corpus")]
    train, dev = (list(corpus(nlp)) for corpus in resolve_dot_names(config, names))
    texts = {example.text for example in train}
    n_same = sum(example.text in texts for example in dev)
    if not train or len(dev) == n_same:
        raise BioelError(EvaluationErrors.B572.format(train=len(train), dev=len(dev), same=n_same))
    return [train, dev]


def _count_found(
    detector: MentionDetector, examples: Sequence[Example]
) -> dict[str, Counter[str | None]]:
    """Count each label's gold mentions by the label that the detector gives them, or None if it
    does not find them."""
    counts: dict[str, Counter[str | None]] = defaultdict(Counter)
    predicted = detector.predict([example.predicted for example in examples])
    for example, spans in zip(examples, predicted, strict=True):
        for gold in gold_spans(example, key=detector.cfg["gold_key"]):
            overlaps = {
                label: min(end, gold.end) - max(start, gold.start)
                for start, end, label, _ in spans
                if min(end, gold.end) - max(start, gold.start)
                >= _MIN_OVERLAP * max(end - start, gold.end - gold.start)
            }
            counts[gold.label][max(overlaps, key=overlaps.__getitem__, default=None)] += 1
    return counts


def _predict(
    detector: MentionDetector, examples: Sequence[Example], labels: Collection[str]
) -> dict[str, list[ScoredSpan]]:
    """Return the spans found for some labels in each text, with probabilities as soft targets.

    A detector that learns these spans along with the annotations forgets less of what it knew
    about the labels (see `training/scripts/teach.py`).
    """
    docs = [example.predicted for example in examples]
    scored = detector.score_spans(docs, min_probability=_MIN_TAUGHT)
    return {
        doc.text: [span for span in spans if span[2] in labels]
        for doc, spans in zip(docs, scored, strict=True)
    }


def choose_starts(
    own: Iterable[str],
    known: Sequence[str],
    found: Mapping[str, Mapping[str | None, int]],
    *,
    told: Mapping[str, str | None],
) -> dict[str, Start]:
    """Choose the pipeline label that each corpus label starts from.

    known (Sequence[str]): Labels of the pipeline.
    found (Mapping): For each corpus label, its number of found mentions by pipeline label.
    RAISES BioelError: [B571] if `told` names a label that does not exist.
    """
    own = sorted(own)
    for label, start in told.items():
        for wanted, labels, where in ((label, own, "corpus"), (start, known, "pipeline")):
            if wanted is not None and wanted not in labels:
                about = {"label": wanted, "where": where, "known": ", ".join(labels)}
                raise BioelError(EvaluationErrors.B571.format(**about))
    return {label: _start_of(label, known, found.get(label, {}), told) for label in own}


def _start_of(
    label: str,
    known: Sequence[str],
    found: Mapping[str | None, int],
    told: Mapping[str, str | None],
) -> Start:
    if label in told:
        return Start(told[label], "as told")
    same_meaning = [other for other in known if _meaning(other) == _meaning(label)]
    if label in known or same_meaning:
        return Start(label if label in known else same_meaning[0], "by name")
    best = max(filter(None, found), key=found.__getitem__, default=None)
    if best and 2 * found[best] > sum(found.values()):
        return Start(best, "by overlap")
    return Start(None, "")


def _meaning(label: str) -> str:
    """Normalise a label: lower-case it, strip separators and a final "s", and resolve synonyms."""
    name = re.sub(r"[\W_]+", "", label).lower().removesuffix("s")
    return _MEANINGS.get(name, name)


def _adapt_linker(
    linker: Linker,
    labels: Mapping[str, str | None],
    kb: KbSetting | None,
    label_types: dict[str, list[str]],
    *,
    kept: Collection[str],
) -> None:
    """Link each new label to its knowledge base in `kb`, or to that of the label it starts from."""
    cfg = linker.cfg

    def renamed(values: Mapping[str, Any], only: Collection[str]) -> dict[str, Any]:
        pairs = ((new, old) for new, old in labels.items() if new in only)
        return {new: values[old] for new, old in pairs if old and old in values}

    if kb is None:
        cfg["label_types"] = renamed(cfg["label_types"], labels) | label_types
        if isinstance(cfg["kb"], dict):
            cfg["kb"] = renamed(cfg["kb"], labels) or folders_of(cfg["kb"])
        return
    if isinstance(kb, dict):
        kept = labels.keys() - kb.keys()
    before = cfg["kb"]
    if isinstance(before, str):
        before = dict.fromkeys(filter(None, labels.values()), before)
    of_kept = renamed(before, kept) if isinstance(before, dict) else {}
    cfg["label_types"] = renamed(cfg["label_types"], kept) | label_types
    if of_kept and isinstance(kb, str):
        kb = dict.fromkeys(sorted({*labels} - {*kept}), kb)
    linker.set_kb({**kb, **of_kept} if isinstance(kb, dict) else kb)
    cfg["include_kb"] = cfg["include_kb"] or not of_kept


def _check_linkable(linker: Linker, examples: Iterable[Example]) -> None:
    """Warn [W383] about labels whose training mentions have no linkable ids.

    Such a label is then not linked, unless it has a knowledge base of its own.
    """
    ids: dict[str, Counter[str]] = defaultdict(Counter)
    for example in examples:
        for span in gold_spans(example, key=linker.cfg["gold_key"]):
            ids[span.label].update(span.ids)
    kb = linker.kb
    parts = kb.labels if isinstance(kb, JoinedKnowledgeBase) else {}
    for label, counts in ids.items():
        is_listed = label in parts or not parts
        of_label = parts_of(kb)[parts[label]] if label in parts else kb
        if not KnownIds.of(of_label, counts).known and (counts or not is_listed):
            if not is_listed:
                linker.cfg["label_types"][label] = []
            where = of_label.where if is_listed else "any knowledge base, so they are not linked"
            LOGGER.warning(EvaluationWarnings.W383.format(label=label, kb=where))


def _add_mentions(linker: Linker, examples: Sequence[Example], *, only_known: bool) -> None:
    """Add the training mentions to the alias table.

    only_known (bool): Remove ids that the knowledge base lacks.
    RAISES BioelError: [B077] if the knowledge base has none of the mentions' ids.
    """
    kb, start = linker.kb, linker.alias_table
    linker.alias_table = AliasTable()
    linker.count_mentions(examples)
    check_gold_ids(kb, linker.alias_table.ids, "training documents")
    added = linker.alias_table.counts.items()
    all_ = start.with_mentions((s, id) for s, ids in added for id in Counter(ids).elements())
    known = {id for id in all_.ids if not only_known or kb.find(id) >= 0}
    kept = {s: {id: n for id, n in ids.items() if id in known} for s, ids in all_.counts.items()}
    linker.alias_table = AliasTable({string: ids for string, ids in kept.items() if ids})
