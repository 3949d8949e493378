"""Errors and warnings of the service."""

from __future__ import annotations

from spacy_bioel.errors import Errors, Warnings


class ServiceErrors(Errors):
    B380 = "This service has no path {path:.80}. Its paths are listed in /openapi.json."
    B381 = "{path:.80} does not accept {method}, expected {allowed}. Change the method."
    B382 = "The request body is larger than {most:,} bytes. Send fewer or shorter texts per request; the limits are in /info."
    B383 = "The request contains {found:,} texts, expected at most {most:,}. Send them in several requests."
    B384 = "Invalid request: {problem}. Correct it; /openapi.json describes the requests."
    B385 = "The request body is not JSON: {found}. Send JSON in UTF-8."
    B386 = "The text has {found:,} characters, expected at most {most:,}. Split it, for example at its sections."
    B387 = "The pipeline is still loading. Try again later; /readyz reports when it is ready."
    B388 = "The pipeline has no linker to serve; its pipes are: {pipes}. Specify a pipeline with a bioel_linker or a knowledge base, or leave MODEL out to serve the starter."
    B389 = "Too many requests at once. Try again after the number of seconds in Retry-After."
    B390 = "The request body did not arrive within {seconds:g} seconds. Send it again."
    B391 = "No answer within {seconds:g} seconds, because there are many texts or other requests came first. Send fewer texts, or try again after the number of seconds in Retry-After."
    B392 = "Internal service error: {error}. The details are in its log; please report them together with the request."
    B393 = "Cannot listen on {host}, port {port}: {reason}. Choose another address with --host and --port; port 0 selects a free port."
    B394 = "The request body has the content type {found}, expected application/json. Set the Content-Type header."
    B395 = "The {what} {name!r} of {module} is declared wrongly: {error}. Expected typed parameters, the first a KnowledgeBase or a Language; a route has one more, its request, which is a pydantic model like its answer. Correct it, or uninstall the package that contains it."
    B486 = "This service does not accept the host name {found}. Use its address or localhost, or ask the administrator of the service to allow this host name."
    B487 = "The {name} argument of {tool} is invalid: {problem}. Correct it and call again."
    B488 = "--allowed-host {found!r}: expected only a host name, without https:// and without a port, such as bioel.example.org."
    B560 = "This text was not linked within {seconds:g} seconds. Do not send it again: split it, for example at its sections, or ask the administrator of the service to increase --deadline."
    B561 = "The worker process that linked this text died ({how}). Do not send it again: split it, for example at its sections, or ask the administrator of the service whether memory ran out."
    B562 = "A worker process died ({how}) before the pipeline was loaded. If memory ran out, use fewer workers: --workers 1."
    B563 = "The service is stopping. Send the request again after the number of seconds in Retry-After."


class ServiceWarnings(Warnings):
    W650 = "{n} workers share one GPU, with {share:.1f} of its {free:.1f} free GB for each. Each of them needs memory for CUDA, and for its own copy of the pipeline and its batches; if that is too little, use --workers 1."
