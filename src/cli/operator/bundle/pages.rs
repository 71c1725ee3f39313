//! The pages of a bundle, and the names of their files.

use crate::cli::operator::bundle::redact::Format;

/// The name of a file, and the path of its page.
pub(super) const PAGES: [(&str, &str); 18] = [
    ("statusz.txt", "/statusz"),
    ("flagz.txt", "/flagz"),
    ("configz.json", "/configz"),
    (READYZ, "/readyz?verbose"),
    ("metrics.txt", "/metrics"),
    ("slis.txt", "/metrics/slis"),
    ("memory.json", "/debug/memory"),
    ("log.json", "/debug/log"),
    ("connections.json", "/debug/connections?limit=1000"),
    ("overview.json", "/api/overview"),
    ("caches.json", "/api/caches"),
    ("clients.json", "/api/clients?limit=200"),
    ("findings.json", "/api/findings?limit=200"),
    ("reasons.json", "/api/reasons"),
    ("events.json", "/api/events"),
    ("limits.json", "/api/limits"),
    // Only in shadow mode.
    ("shadow.json", "/api/shadow"),
    ("log-lines.jsonl", "/debug/log/lines"),
];

/// The metrics once more, so that there are rates.
pub(super) const METRICS_LATER: &str = "metrics-later.txt";
/// Also read where it fails.
pub(super) const READYZ: &str = "readyz.txt";

/// Returns how a file is read.
pub(super) fn format_of(file: &str) -> Format {
    let name = file.rsplit('/').next().unwrap_or(file);
    match name.rsplit_once('.').map(|(_, kind)| kind) {
        Some("json") => Format::Json,
        Some("jsonl") => Format::JsonLines,
        _ if name.starts_with("metrics") && name.ends_with(".txt") => Format::Metrics,
        _ if name == "slis.txt" => Format::Metrics,
        _ => Format::Text,
    }
}
