//! The use of the memory of this process, as far as it is added up
//! (`docs/decisions/operators-views.md`). The parts of Weir give the figures.

use serde_json::{Map, Value, json};

use crate::telemetry::process::ProcessFigures;

/// The memory of this process, by its uses.
#[derive(Clone, Debug, Default)]
pub struct MemoryFigures {
    /// The bytes of each part, by its name.
    pub parts: Vec<(&'static str, f64)>,
    /// The memory limit of this process in bytes.
    pub limit: Option<f64>,
    /// Open connections and watches, whose memory is not measured: some tens of kilobytes each.
    pub connections: f64,
    /// Open watches.
    pub watches: f64,
}

impl MemoryFigures {
    /// Returns the parts of the memory, and the rest. `log_lines` is the memory of the last lines
    /// of the log in bytes.
    pub(super) fn describe(&self, log_lines: usize, process: &ProcessFigures) -> Value {
        let mut parts = Map::from_iter([("logLines".to_owned(), json!(log_lines as f64))]);
        parts.extend(self.parts.iter().map(|(part, bytes)| ((*part).to_owned(), json!(bytes))));
        let accounted: f64 = parts.values().filter_map(Value::as_f64).sum();
        let resident = process.resident.unwrap_or(0.0);
        json!({
            "limitBytes": self.limit,
            "residentBytes": resident,
            "fileBytes": process.files,
            "accountedBytes": accounted,
            // Mapped files, such as the binary, are not allocations.
            "unaccountedBytes": resident - process.files.unwrap_or(0.0) - accounted,
            "parts": parts,
            "connections": self.connections,
            "watches": self.watches,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_what_nothing_accounts_for() {
        let parts = vec![("caches", 500.0), ("compressedLists", 40.0)];
        let figures = MemoryFigures { parts, ..MemoryFigures::default() };
        let process = ProcessFigures {
            resident: Some(10_000.0),
            files: Some(4096.0),
            ..ProcessFigures::default()
        };
        let memory = figures.describe(60, &process);
        assert_eq!(memory["accountedBytes"], 600.0);
        assert_eq!(memory["fileBytes"], 4096.0);
        assert_eq!(memory["unaccountedBytes"], 10_000.0 - 4096.0 - 600.0);
        assert_eq!(memory["parts"]["compressedLists"], 40.0);
        assert_eq!(memory["limitBytes"], Value::Null);
        let without = figures.describe(0, &ProcessFigures::default());
        assert_eq!(
            (&without["fileBytes"], &without["accountedBytes"]),
            (&Value::Null, &540.0.into())
        );
    }
}
