"""Errors and warnings of the evaluation plugin."""

from __future__ import annotations

from spacy_bioel.errors import Errors, Warnings


class EvaluationErrors(Errors):
    B080 = "{n_gold} gold documents and {n_predicted} lists of predicted links cannot be compared. Pass one list of links per document, in the same order."
    B230 = "OUT ({out}) would replace {what} ({path}): they are the same, or one contains the other. Choose another OUT."
    B231 = "{out} exists and is not a pipeline: expected config.cfg and meta.json. It was not replaced. Choose another OUT, or remove it first."
    B232 = "The pipeline has no pipe to tune: expected bioel_mentions, bioel_linker or both, found {pipes}. Add one and train it."
    B333 = '{path}: no gold mention has an id, and the pipeline has only a linker, so nothing can be tuned. In JSON lines, the ids of a mention are in the list "ids".'
    B360 = "{path} is not a valid error report: expected a name that ends in .tsv, .csv or .jsonl. To write a page, use --html."
    B361 = "--prefix specifies both {first!r} and {second!r} for the same ids. Specify one prefix for all labels (--prefix MESH), and one for each label with a different prefix (--prefix Gene=NCBIGene)."
    B362 = "--label {found!r}: expected GOLD=MODEL, once for each label GOLD of the corpus, e.g. --label SpecificDisease=Disease; GOLD= excludes the mentions labelled GOLD."
    B363 = "{path}: an option specifies the label {label!r}, but no gold mention has it. The corpus has the labels {known}."
    B364 = "{path}, document {id!s:.80}: a gold mention is labelled {found}, but --annotates lists only {annotates}. Add the label there, rename it (--label GOLD=MODEL), or exclude it (--label GOLD=)."
    B365 = "{path} is not a pipeline: it has no meta.json. Specify the output of `bioel tune`."
    B366 = "{path} contains no scores for a model card: expected the output of `bioel evaluate MODEL GOLD --json FILE` with its default protocols, found {found}. Evaluate the pipeline again."
    B367 = "{path} already exists. To replace it, add --replace."
    B368 = "{name!r} is not a valid package name. Use letters, digits and underscores, as in --name discharge_letters."
    B369 = "--label {gold}={label}: the pipeline has no label {label!r}; its labels are {known}. Choose one of them, or exclude the mentions labelled {gold} (--label {gold}=)."
    B530 = "{n:,} of the {of:,} documents in {path} are also in {train} (first: {first}). Remove them from one of the two files, because scores on them do not show how well new texts are linked."
    B531 = "{path}: {n:,} of {of:,} mentions start or end inside a word (first: {first}). Correct the offsets: count characters, not bytes, from 0; the end is exclusive."
    B532 = "{path} and {train} have no label in common: {found} and {known}. Rename labels (--label GOLD=MODEL), or choose the right files."
    B533 = "{path}: none of the {n:,} mentions has an id, so no linker can be trained or measured. Add the ids to the mentions, or check --format."
    B571 = "`labels` in [initialize.before_init] refers to the label {label!r}, which the {where} does not have. Its labels are {known}. Specify labels of the training documents, each with a label of the pipeline to start from, or null."
    B572 = "There are {train:,} training documents and {dev:,} development documents ({same:,} of them also for training). Expected at least one to learn from, and another one to choose the best pipeline: put about one document in five into the file for dev, and only there."
    B573 = 'The pipe {name!r} has nothing to start from. Take it over from a trained pipeline: in [components.{name}], replace all settings by `source = "starter"`, the folder of that pipeline.'
    B574 = "{model} cannot be trained further, because it lacks a pipe bioel_mentions or bioel_linker: it has {pipes}. Start from the starter, or from a pipeline that was trained with both."
    B575 = "--kb names the label {label!r}, but neither the training documents nor the pipeline have it. Their labels are {known}. Specify one of these: --kb LABEL={folder}"
    B576 = "No development document has a label that the training documents have: {dev} instead of {train}. Use the same labels in both files; `bioel corpus check TRAIN DEV` compares them."
    B630 = "--xrefs: the knowledge base ({kb}) has no cross-references. Leave the option out, or build the knowledge base from a source with cross-references (`bioel kb build`)."
    B639 = "There is no detector to quantise: the pipeline has {pipes}. Specify a pipeline with a bioel_mentions pipe."
    B640 = "Quantising would reduce {protocol} F1 from {before:.2f} to {after:.2f}, by {loss:.2f} points; the limit is {largest}. Nothing was written. Use the pipeline as it is, or measure on more development documents: on a few, one mention may be more than this."


class EvaluationWarnings(Warnings):
    W311 = "{path} contains the scores of another pipeline (model_fingerprint {found}; this pipeline has {expected}). The card was written; evaluate this pipeline, and write the card again."
    W341 = "{path}: {what}: {n:,} (first: {first}). Remove the copies, or give each document an id of its own."
    W342 = "{path}: {n:,} of {of:,} mentions start or end inside a word (first: {first}). Compare their offsets with the text; they may be off by one."
    W343 = "{path} has mentions labelled {found}, which {train} lacks: a detector cannot learn them. Its labels are {known}. Rename or exclude labels (--label), or add training documents."
    W344 = "{path}: ids that contain white space: {n:,} (first: {first}). Ids in knowledge bases never do. Correct them; several ids of a mention are separate ids, not one string."
    W371 = "{path}: {absent:,} of {n:,} gold ids are not in the knowledge base; the most frequent: {first}. A linker cannot return them. {hint}"
    W372 = "{path}: no gold mention has an id, so figures for links (all protocols but mention) are 0 and mean nothing. Add ids to the mentions, or use --protocol mention."
    W380 = "The label {label!r} starts from {start!r} ({reason}); {share:.0%} of its training mentions are found as {start} so far."
    W381 = "The label {label!r} starts from none of the labels {known}, so it needs more documents than the others. If it means one of them, specify {label} = LABEL in [initialize.before_init.labels] of fine_tune.cfg, and train with `spacy train`."
    W383 = "The training mentions labelled {label!r} have no id in {kb}. If they belong to another knowledge base, specify it: --kb {label}=FOLDER (spacy train: --paths.kb {label}=FOLDER)."
    W455 = "Using only the knowledge base, without training, is better here: {protocol} {metric} {alone:.1f}, the pipeline {value:.1f}. Annotate more documents, or use the knowledge base as the pipeline."
    W457 = "Figures on plain text are 0, because predictions are only counted if they are labelled {counted}, but the pipeline labels them {found}. If it is a knowledge base, leave --annotates out; otherwise rename the label of the corpus: --label {first}=LABEL --annotates LABEL"
    W458 = "{n:,} of {total:,} predictions on plain text count as errors, because no gold mention has their labels: {found}. If the documents are not annotated with these labels, leave them out: {annotates}"
    W480 = "--kb names the label {label!r}, but no gold mention has it (their labels: {known}), and the pipeline does not find it. If you mean one of these: --kb LABEL={folder}"
