//! The use of the memory of this process, as far as it is added up. The figures are those of
//! `/metrics`, so that the two never differ.

use prometheus::Registry;
use serde_json::{Map, Value, json};

use crate::admin::numbers::Numbers;

/// Returns the parts of the memory, and the rest.
pub(super) fn memory(registry: &Registry) -> Value {
    let numbers = Numbers::gather(registry);
    let mut parts = Map::new();
    let mut accounted = 0.0;
    for (part, metric) in PARTS {
        let bytes = numbers.sum(metric, &[]);
        accounted += bytes;
        parts.insert(part.to_owned(), json!(bytes));
    }
    let resident = numbers.sum(RESIDENT, &[]);
    let limit = numbers.find(LIMIT, &[]).filter(|limit| limit.is_finite());
    json!({
        "limitBytes": limit,
        "residentBytes": resident,
        "accountedBytes": accounted,
        "unaccountedBytes": resident - accounted,
        "parts": parts,
    })
}

const RESIDENT: &str = "process_resident_memory_bytes";
const LIMIT: &str = "weir_memory_limit_bytes";
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
        set("process_resident_memory_bytes", 1_000);
        float_gauge(&registry, "weir_memory_limit_bytes", "Bytes.").unwrap().set(f64::INFINITY);
        let memory = memory(&registry);
        assert_eq!(memory["accountedBytes"], 540.0);
        assert_eq!(memory["unaccountedBytes"], 460.0);
        assert_eq!(memory["parts"]["compressedLists"], 40.0);
        assert_eq!(memory["limitBytes"], Value::Null);
    }
}
