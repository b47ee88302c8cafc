//! Studies: a grid of points over fields of workloads and systems, run in parallel, resumable.
