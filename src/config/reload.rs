//! The settings that a running Weir takes over from a changed file, and those that need a restart
//! (`docs/decisions/configuration.md`).
//!
//! Both configurations are compared as `weir check` prints them, field by field.
//!
//! New values at run time stand beside running ones that need a restart. If `weir check` would
//! refuse that combination, all changes wait for the restart.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::Config;
use crate::config::file::ConfigFile;
use crate::config::kinds::Section;
use crate::config::resolve::{Overrides, Problems};
use crate::config::schema::settings;

/// The fields that differ between the running configuration and a new one, by their paths in the
/// file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The fields that take effect now.
    pub applied: Vec<String>,
    /// The fields that take effect with the next start.
    pub pending: Vec<String>,
    /// The new values of these fields; null where a field is gone.
    pub pending_values: BTreeMap<String, Value>,
    /// Why no field takes effect now: the fields that could contradict running values of those that
    /// need a restart.
    pub conflict: Option<Problems>,
}

impl Config {
    /// Returns this configuration with the fields of `new` that can change at run time, and all
    /// fields that differ. If these fields contradict the others, none of them changes.
    pub fn reloaded(&self, new: &Self) -> (Self, Changes) {
        let mut config = self.clone();
        config.take_live(new);
        let live: Vec<_> = settings().into_iter().filter(|setting| setting.is_live).collect();
        let is_live = |path: &str| live.iter().any(|setting| setting.path == path);
        let changes = self.changes(new, is_live);
        if changes.applied.is_empty() || changes.pending.is_empty() {
            return (config, changes);
        }
        match config.contradictions() {
            None => (config, changes),
            conflict => (self.clone(), Changes { conflict, ..self.changes(new, |_| false) }),
        }
    }

    /// Returns why `weir check` would refuse this configuration.
    fn contradictions(&self) -> Option<Problems> {
        let Ok(file) = ConfigFile::parse("", &self.to_yaml()) else { return None };
        let Problems(mut problems) = Self::resolve(file, Overrides::default()).err()?;
        // Places in a file that nobody has written would mislead.
        problems.iter_mut().for_each(|problem| problem.place = None);
        Some(Problems(problems))
    }

    /// Returns the fields that differ, of which those that `is_live` take effect now.
    fn changes(&self, new: &Self, is_live: impl Fn(&str) -> bool) -> Changes {
        let (running, new) = (self.flattened(), new.flattened());
        let paths = running.keys().chain(new.keys().filter(|path| !running.contains_key(*path)));
        let differing = paths.filter(|path| running.get(*path) != new.get(*path)).cloned();
        let (mut applied, pending): (Vec<_>, _) = differing.partition(|path| is_live(path));
        applied.sort_unstable();
        let value = |path: &String| new.get(path).cloned().unwrap_or_default();
        let pending_values = pending.iter().map(|path| (path.clone(), value(path))).collect();
        Changes { applied, pending, pending_values, conflict: None }
    }

    /// Returns all fields as `weir check` prints them, by path. A list is one field.
    pub fn flattened(&self) -> BTreeMap<String, Value> {
        let mut fields = BTreeMap::new();
        flatten(String::new(), self.to_value(), &mut fields);
        fields
    }
}

fn flatten(path: String, value: Value, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(path, value, fields);
            }
        }
        value => drop(fields.insert(path, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Config {
        let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
        let file = ConfigFile::parse("test", &format!("{head}{text}")).unwrap();
        Config::resolve(file, Overrides::default()).unwrap()
    }

    #[test]
    fn only_live_fields_are_taken_over() {
        let running = Config::default();
        let new = resolve(
            "cache: { maxStaleness: 1m, forwardBudget: 3, exclude: [secrets] }\n\
             server: { listeners: [{ listen: 'http://127.0.0.1:1' }], shutdownTimeout: 9s }\n\
             logging: { filter: debug, format: json }\n",
        );
        let (config, changes) = running.reloaded(&new);
        assert_eq!(
            changes.applied,
            ["cache.exclude", "cache.maxStaleness", "logging.filter", "server.shutdownTimeout"]
        );
        assert_eq!(changes.pending, ["cache.forwardBudget", "logging.format", "server.listeners"]);
        assert_eq!(changes.pending_values["cache.forwardBudget"], 3);
        assert_eq!(changes.pending_values["logging.format"], "json");
        // The applied fields no longer differ, and no other field has changed.
        assert_eq!(config.reloaded(&new).1, Changes { applied: Vec::new(), ..changes });
        assert_eq!(config.server.listeners, running.server.listeners);
    }

    /// Rules need flow control, whose mode changes with a restart only.
    #[test]
    fn changes_that_contradict_running_values_wait_for_the_restart() {
        let running = resolve("flowControl: { mode: off }");
        let new = resolve(
            "cache: { maxStaleness: 7m }\n\
             flowControl: { mode: observe, rules: [{ name: one, action: deny }] }\n",
        );
        let (config, changes) = running.reloaded(&new);
        assert_eq!(config, running);
        assert_eq!(changes.applied, [""; 0]);
        assert_eq!(
            changes.pending,
            ["cache.maxStaleness", "flowControl.mode", "flowControl.rules"]
        );
        assert_eq!(changes.pending_values["cache.maxStaleness"], "7m");
        let conflict = changes.conflict.unwrap().to_string();
        assert!(conflict.starts_with("flowControl.rules: need flowControl.mode"), "{conflict}");
    }

    /// Each live field that differs is really taken over.
    #[test]
    fn all_live_fields_are_taken_over() {
        let new = resolve(
            "cache:\n  { include: ['*/*'], exclude: [secrets], warm: [v1/pods], \
             resourceBytesMax: 1Mi, totalBytesMax: 2Mi, \
             onRelist: endStreams, maxStaleness: 1h, \
             consistentLists: auto, verify: enforce, dropManagedFields: [exporter/*] }\n\
             server: { allowedHosts: [weir.example], shutdownDelay: 7s, shutdownTimeout: 9s }\n\
             logging: { filter: debug, slowRequest: 2s }\n\
             tracing: { samplingRatePerMillion: 7 }\n\
             flowControl: { rules: [{ name: one, action: deny, userAgents: ['x/*'] }] }\n",
        );
        let running = Config::default();
        let (config, changes) = running.reloaded(&new);
        let live = settings().into_iter().filter(|setting| setting.is_live);
        let mut live: Vec<_> = live.map(|setting| setting.path).collect();
        live.sort_unstable();
        assert_eq!(changes.applied, live);
        assert_eq!(changes.pending, [""; 0]);
        // The segments that are kept are counted from the start on.
        let gzip_bytes_max = running.cache.gzip_bytes_max;
        assert_eq!(
            config.cache,
            crate::config::CacheConfig { gzip_bytes_max, ..new.cache.clone() }
        );
        assert_eq!(config.changes(&new, |_| true), Changes::default());
    }
}
