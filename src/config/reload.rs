//! The settings that a running Weir takes over from a changed file, and those that need a restart
//! (`docs/decisions/configuration.md`).
//!
//! Both configurations are compared as `weir check` prints them, field by field. [`LIVE`] and a
//! list in the tests together name every field, so that none is forgotten.
//!
//! New values at run time stand beside running ones that need a restart. If `weir check` would
//! refuse that combination, all changes wait for the restart.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::Config;
use crate::config::file::ConfigFile;
use crate::config::resolve::{Overrides, Problems};

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
        let config = self.with_live_fields(new);
        let changes = self.changes(new, is_live);
        if changes.applied.is_empty() || changes.pending.is_empty() {
            return (config, changes);
        }
        match Self::resolve(ConfigFile::from(&config), Overrides::default()) {
            Ok(_) => (config, changes),
            Err(problems) => {
                let changes = self.changes(new, |_| false);
                (self.clone(), Changes { conflict: Some(problems), ..changes })
            }
        }
    }

    fn with_live_fields(&self, new: &Self) -> Self {
        let mut config = self.clone();
        config.server.allowed_hosts.clone_from(&new.server.allowed_hosts);
        config.server.slow_request = new.server.slow_request;
        config.server.shutdown_delay = new.server.shutdown_delay;
        config.server.shutdown_timeout = new.server.shutdown_timeout;
        config.cache = new.cache.clone();
        config.cache.gzip_bytes_max = self.cache.gzip_bytes_max;
        config.cache.forward_budget = self.cache.forward_budget;
        config.cache.over_budget_forwards = self.cache.over_budget_forwards;
        config.cache.page_size = self.cache.page_size;
        config.flow_control.overlay = new.flow_control.overlay.clone();
        config.logging.filter.clone_from(&new.logging.filter);
        config.tracing.sampling_rate_per_million = new.tracing.sampling_rate_per_million;
        config
    }

    /// Returns the fields that differ, of which those that `is_live` take effect now.
    fn changes(&self, new: &Self, is_live: impl Fn(&str) -> bool) -> Changes {
        let (running, new) = (fields(self), fields(new));
        let paths = running.keys().chain(new.keys().filter(|path| !running.contains_key(*path)));
        let differing = paths.filter(|path| running.get(*path) != new.get(*path)).cloned();
        let (mut applied, pending): (Vec<_>, _) = differing.partition(|path| is_live(path));
        applied.sort_unstable();
        let value = |path: &String| new.get(path).cloned().unwrap_or_default();
        let pending_values = pending.iter().map(|path| (path.clone(), value(path))).collect();
        Changes { applied, pending, pending_values, conflict: None }
    }
}

/// Returns all fields as `weir check` prints them, by path. A list is one field.
fn fields(config: &Config) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    let file = serde_json::to_value(ConfigFile::from(config)).unwrap_or_default();
    flatten(String::new(), file, &mut fields);
    fields
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

fn is_live(path: &str) -> bool {
    LIVE.contains(&path)
}

/// The fields that take effect at once.
const LIVE: &[&str] = &[
    "cache.consistentLists",
    "cache.dropManagedFields",
    "cache.exclude",
    "cache.historyBytesMax",
    "cache.idleTimeout",
    "cache.include",
    "cache.maxStaleness",
    "cache.onRelist",
    "cache.resourceBytesMax",
    "cache.totalBytesMax",
    "cache.verify",
    "cache.warm",
    "flowControl.levels",
    "flowControl.rules",
    "logging.filter",
    "logging.slowRequest",
    "server.allowedHosts",
    "server.shutdownDelay",
    "server.shutdownTimeout",
    "tracing.samplingRatePerMillion",
];

/// The fields, or the sections, that take effect with the next start: what sockets, identities,
/// tasks and tables of fixed size were made from.
#[cfg(test)]
const RESTART: &[&str] = &[
    "admin",
    "apiVersion",
    "audit",
    "authentication",
    "authorization",
    "cache.forwardBudget",
    "cache.gzipBytesMax",
    "flowControl.adaptive",
    "flowControl.mode",
    "flowControl.seatsPerServer",
    "kind",
    "logging.format",
    "server.connectionsPerAddressMax",
    "server.connectionsPerUserMax",
    "server.listeners",
    "server.watchesPerUserMax",
    "shadow",
    "tracing.caFile",
    "tracing.endpoint",
    "upstream",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Config {
        let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
        let file = ConfigFile::parse("test", &format!("{head}{text}")).unwrap();
        Config::resolve(file, Overrides::default()).unwrap()
    }

    fn gateway() -> Config {
        let text = std::fs::read_to_string("config/gateway.yaml").unwrap();
        let file = ConfigFile::parse("config/gateway.yaml", &text).unwrap();
        Config::resolve(file, Overrides::default()).unwrap()
    }

    #[test]
    fn each_field_is_either_live_or_needs_a_restart() {
        for config in [Config::default(), gateway()] {
            for path in fields(&config).keys() {
                let restart = RESTART.iter().filter(|section| {
                    let rest = path.strip_prefix(**section);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                });
                let live = usize::from(is_live(path));
                assert_eq!(live + restart.count(), 1, "{path}");
            }
        }
    }

    /// Returns the paths that a cell of a table in the documentation names. One without a dot is of
    /// the section of the one before it.
    fn named(cell: &str) -> Vec<String> {
        let mut section = "";
        let names = cell.split('`').skip(1).step_by(2).map(|name| match name.rsplit_once('.') {
            Some((section_name, _)) => {
                section = section_name;
                name.to_owned()
            }
            None if section.is_empty() => name.to_owned(),
            None => format!("{section}.{name}"),
        });
        names.collect()
    }

    #[test]
    fn the_table_in_the_documentation_names_each_field_once() {
        let page = std::fs::read_to_string("docs/how-to/reload.md").unwrap();
        let rows = page.lines().skip_while(|line| !line.starts_with("| takes effect at once |"));
        let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
        let (mut live, mut restart) = (Vec::new(), Vec::new());
        for row in rows {
            let mut cells = row.trim_matches('|').split('|');
            live.extend(cells.next().map(named).unwrap());
            restart.extend(cells.next().map(named).unwrap());
        }
        live.sort_unstable();
        restart.sort_unstable();
        let identity = ["apiVersion", "kind"];
        let expected = RESTART.iter().filter(|path| !identity.contains(path)).collect::<Vec<_>>();
        assert_eq!(live.iter().collect::<Vec<_>>(), LIVE.iter().collect::<Vec<_>>());
        assert_eq!(restart.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_live_fields_are_taken_over() {
        let running = Config::default();
        let new = resolve(
            "cache: { idleTimeout: 1m, forwardBudget: 3, exclude: [secrets] }\n\
             server: { listeners: [{ listen: 'http://127.0.0.1:1' }], shutdownTimeout: 9s }\n\
             logging: { filter: debug, format: json }\n",
        );
        let (config, changes) = running.reloaded(&new);
        assert_eq!(
            changes.applied,
            ["cache.exclude", "cache.idleTimeout", "logging.filter", "server.shutdownTimeout"]
        );
        assert_eq!(changes.pending, ["cache.forwardBudget", "logging.format", "server.listeners"]);
        assert_eq!(changes.pending_values["cache.forwardBudget"], 3);
        assert_eq!(changes.pending_values["logging.format"], "json");
        // The applied fields no longer differ, and no other field has changed.
        assert_eq!(config.changes(&new, is_live), Changes { applied: Vec::new(), ..changes });
        assert_eq!(config.server.listeners, running.server.listeners);
    }

    /// Rules need flow control, whose mode changes with a restart only.
    #[test]
    fn changes_that_contradict_running_values_wait_for_the_restart() {
        let running = resolve("flowControl: { mode: 'off' }");
        let new = resolve(
            "cache: { idleTimeout: 7m }\n\
             flowControl: { mode: observe, rules: [{ name: one, action: deny }] }\n",
        );
        let (config, changes) = running.reloaded(&new);
        assert_eq!(config, running);
        assert_eq!(changes.applied, [""; 0]);
        assert_eq!(changes.pending, ["cache.idleTimeout", "flowControl.mode", "flowControl.rules"]);
        assert_eq!(changes.pending_values["cache.idleTimeout"], "7m");
        let conflict = changes.conflict.unwrap().to_string();
        assert!(conflict.starts_with("flowControl.rules: need flowControl.mode"), "{conflict}");
    }

    /// Each live field that differs is really taken over.
    #[test]
    fn all_live_fields_are_taken_over() {
        let new = resolve(
            "cache:\n  { include: ['*/*'], exclude: [secrets], warm: [v1/pods], idleTimeout: 1m, \
             resourceBytesMax: 1Mi, totalBytesMax: 2Mi, historyBytesMax: 1Mi, \
             onRelist: endStreams, maxStaleness: 1h, \
             consistentLists: auto, verify: enforce, \
             dropManagedFields: [{ userAgents: [exporter/*] }] }\n\
             server: { allowedHosts: [weir.example], shutdownDelay: 7s, shutdownTimeout: 9s }\n\
             logging: { filter: debug, slowRequest: 2s }\n\
             tracing: { samplingRatePerMillion: 7 }\n\
             flowControl:\n  mode: observe\n  rules: [{ name: one, action: deny, userAgents: ['x/*'] }]\n",
        );
        let mut running = Config::default();
        running.flow_control.mode = new.flow_control.mode;
        let (config, changes) = running.reloaded(&new);
        let differing: Vec<_> = LIVE.iter().filter(|path| **path != "flowControl.levels").collect();
        assert_eq!(changes.applied.iter().collect::<Vec<_>>(), differing);
        assert_eq!(changes.pending, [""; 0]);
        assert_eq!(config, new);
    }
}
