//! The use of the memory of this process, as far as it is added up
//! (`docs/decisions/operators-views.md`). The figures of the parts are those of `/metrics`, so that
//! the two never differ.

use std::fs;

use prometheus::Registry;
use serde_json::{Map, Value, json};

use crate::admin::numbers::Numbers;

/// Returns the parts of the memory, and the rest. `log_lines` is the memory of the last lines of
/// the log in bytes.
pub(super) fn memory(registry: &Registry, log_lines: usize) -> Value {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    describe(&Numbers::gather(registry), log_lines, &status)
}

fn describe(numbers: &Numbers, log_lines: usize, status: &str) -> Value {
    let mut parts = Map::from_iter([("logLines".to_owned(), json!(log_lines as f64))]);
    for (part, metric) in PARTS {
        parts.insert(part.to_owned(), json!(numbers.sum(metric, &[])));
    }
    let accounted: f64 = parts.values().filter_map(Value::as_f64).sum();
    let resident = numbers.sum(RESIDENT, &[]);
    // Mapped files, such as the binary, are not allocations.
    let files = bytes(status, "RssFile:");
    let limit = numbers.find(LIMIT, &[]).filter(|limit| limit.is_finite());
    json!({
        "limitBytes": limit,
        "residentBytes": resident,
        "fileBytes": files,
        "accountedBytes": accounted,
        "unaccountedBytes": resident - files.unwrap_or(0.0) - accounted,
        "parts": parts,
        "connections": numbers.sum(CONNECTIONS, &[]),
        "watches": numbers.sum(WATCHES, &[]),
    })
}

/// Returns a size of `/proc/self/status` in bytes.
fn bytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes = line.trim().strip_suffix(" kB")?.parse::<f64>().ok()?;
    Some(kilobytes * 1024.0)
}

const RESIDENT: &str = "process_resident_memory_bytes";
const LIMIT: &str = "weir_memory_limit_bytes";
/// What else takes memory, which is not measured: some tens of kilobytes each.
const CONNECTIONS: &str = "weir_connections";
const WATCHES: &str = "weir_watchers";
/// The parts that are added up, and their metrics.
const PARTS: [(&str, &str); 7] = [
    ("caches", "weir_cache_total_bytes"),
    ("compressedLists", "weir_gzip_segments_bytes"),
    ("documents", "weir_documents_bytes"),
    ("responses", "weir_response_memory_bytes"),
    ("tokens", "weir_token_review_cache_bytes"),
    ("permissions", "weir_authorization_cache_bytes"),
    ("audit", "weir_audit_queue_bytes"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{float_gauge, gauge};

    #[test]
    fn the_rest_is_what_nothing_accounts_for() {
        let registry = Registry::new();
        let set = |name: &str, bytes: i64| gauge(&registry, name, "Bytes.").unwrap().set(bytes);
        set("weir_cache_total_bytes", 500);
        set("weir_gzip_segments_bytes", 40);
        set("process_resident_memory_bytes", 10_000);
        float_gauge(&registry, "weir_memory_limit_bytes", "Bytes.").unwrap().set(f64::INFINITY);
        let status = "Name:\tweir\nRssAnon:\t       6 kB\nRssFile:\t       4 kB\n";
        let memory = describe(&Numbers::gather(&registry), 60, status);
        assert_eq!(memory["accountedBytes"], 600.0);
        assert_eq!(memory["fileBytes"], 4096.0);
        assert_eq!(memory["unaccountedBytes"], 10_000.0 - 4096.0 - 600.0);
        assert_eq!(memory["parts"]["compressedLists"], 40.0);
        assert_eq!(memory["limitBytes"], Value::Null);
        let without = describe(&Numbers::gather(&registry), 0, "");
        assert_eq!(
            (&without["fileBytes"], &without["accountedBytes"]),
            (&Value::Null, &540.0.into())
        );
    }
}
