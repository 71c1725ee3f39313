//! The content of the z-pages: the flags of this process, and the configuration that its parts use.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Value, json};

use crate::admin::{Admin, ZPages};
use crate::app::build_info;
use crate::app::metrics::Metrics;
use crate::app::reload::hash;
use crate::cache::registry::Registry;
use crate::config::seams::Seams;
use crate::config::{AdminDetail, Config};
use crate::server::ConnectionList;
use crate::telemetry::logging::Log;

/// The settings of a process beside its configuration.
#[derive(Clone, Default)]
pub struct Given {
    /// Flags and variables of the environment, by name. There are no secrets among them.
    pub flags: Vec<(String, String)>,
    /// The log, if that is this process's.
    pub log: Option<Log>,
    /// Constants that a test changes.
    pub seams: Seams,
}

impl Given {
    /// Reads the flags as they were given: `--name value` or `--name=value`. The
    /// values of a repeated one are joined.
    pub fn with_arguments(mut self, arguments: impl Iterator<Item = String>) -> Self {
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--") else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let value = arguments.next_if(|next| !next.starts_with("--"));
                    (flag, value.unwrap_or_else(|| "true".to_owned()))
                }
            };
            match self.flags.iter_mut().find(|(flag, _)| flag == name) {
                Some((_, values)) => values.extend([",", &value]),
                None => self.flags.push((name.to_owned(), value)),
            }
        }
        self
    }

    /// Adds the variables of the environment that Weir reads, and the names of those that look as
    /// if it did. Their values may be secrets.
    pub fn with_variables(self) -> Self {
        self.with_these_variables(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        }))
    }

    fn with_these_variables(mut self, variables: impl Iterator<Item = (String, String)>) -> Self {
        for (name, value) in variables {
            if VARIABLES.contains(&name.as_str()) {
                self.flags.push((name, value));
            } else if name.starts_with(PREFIX) {
                self.flags.push((name, UNUSED.to_owned()));
            }
        }
        self
    }
}

/// Adds the z-pages of a process that uses `running`, if local clients may see details.
pub(super) fn show(
    admin: &Admin,
    given: Given,
    running: &Arc<ArcSwap<Config>>,
    connections: ConnectionList,
    (caches, metrics): (Registry, &Metrics),
) {
    if running.load().admin.detail != AdminDetail::Local {
        return;
    }
    let config = Arc::clone(running);
    let reload = metrics.reload.clone();
    let describe = move || configuration(&config.load(), &reload.pending_values());
    let pages = ZPages::new(build_info::VERSION, given.flags, describe);
    let pages = pages.with_connections(move |limit| connections.describe(limit));
    let pages = pages.with_caches(caches, metrics.events.clone());
    let memory = metrics.clone();
    let pages = pages.with_memory(move || memory.memory());
    admin.set_zpages(pages.with_log(given.log));
}

/// Returns what `weir check` prints of a configuration. Secrets are in files of their own, of which
/// it has the paths alone. `pending` has the values that wait for a restart.
fn configuration(config: &Config, pending: &BTreeMap<String, Value>) -> Value {
    json!({
        "kind": "Configz",
        "apiVersion": "weir.dev/v1alpha1",
        "hash": hash(config),
        "pending": pending,
        "configuration": config.to_value(),
    })
}

/// The variables of the environment that Weir reads and that hold no secret. A proxy's address may.
const VARIABLES: [&str; 3] = ["WEIR_LOG", "KUBECONFIG", "NO_PROXY"];
const PREFIX: &str = "WEIR_";
const UNUSED: &str = "(not a variable of weir)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::ConfigFile;
    use crate::config::resolve::Overrides;

    #[test]
    fn flags_are_shown_as_given() {
        let arguments =
            "weir serve --config weir.yaml --listen=https://127.0.0.1:1 --quiet --listen unix:///s";
        let given = Given::default().with_arguments(arguments.split(' ').map(str::to_owned));
        let expected = [
            ("config", "weir.yaml"),
            ("listen", "https://127.0.0.1:1,unix:///s"),
            ("quiet", "true"),
        ];
        assert_eq!(given.flags, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let set = [("WEIR_LOG", "debug"), ("WEIR_TOKEN", "secret"), ("HOME", "/root")];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let given = given.with_these_variables(set.into_iter());
        let variables = [("WEIR_LOG", "debug"), ("WEIR_TOKEN", "(not a variable of weir)")];
        assert_eq!(
            given.flags[3..],
            variables.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    /// So it has no secret that `weir check` would not print.
    #[test]
    fn configz_is_what_check_prints() {
        for name in ["weir.yaml", "sidecar.yaml", "gateway.yaml", "shedding.yaml"] {
            let path = format!("{}/config/{name}", env!("CARGO_MANIFEST_DIR"));
            let text = ConfigFile::read_text(path.as_ref()).unwrap();
            let file = ConfigFile::parse(&path, &text).unwrap();
            let config = Config::resolve(file, Overrides::default()).unwrap();
            let pending = BTreeMap::from([("admin.listen".to_owned(), json!("127.0.0.1:1"))]);
            let printed_config = configuration(&config, &pending);
            assert_eq!(printed_config["pending"], json!({ "admin.listen": "127.0.0.1:1" }));
            let printed = config.to_yaml();
            let read = ConfigFile::parse(name, &printed).unwrap();
            let read = Config::resolve(read, Overrides::default()).unwrap();
            assert_eq!(printed_config["configuration"], read.to_value(), "{name}");
            assert_eq!(printed_config["hash"].as_str().unwrap().len(), 16);
        }
    }
}
