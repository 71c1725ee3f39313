//! The formats of the files in a bundle.

/// How the content of a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli::operator::bundle) enum Format {
    /// One JSON document.
    Json,
    /// JSON objects, one a line; a line that is not JSON is read as text.
    JsonLines,
    /// The text format of Prometheus.
    Metrics,
    /// Lines of text, of which some are `name=value`.
    Text,
}
