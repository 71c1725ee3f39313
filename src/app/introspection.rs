//! The content of the z-pages: the flags of this process, and the configuration that its parts use.

mod origins;

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Value, json};

use crate::admin::{Admin, ZPages};
use crate::app::build_info;
use crate::app::metrics::Metrics;
use crate::app::reload::hash;
use crate::cache::registry::Registry;
use crate::config::file::ConfigFile;
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
}

impl Given {
    /// Reads flags as they were given: `--name value` or `--name=value`. The values of a repeated
    /// one are joined.
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
            match self.flags.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.extend([",", &value]),
                None => self.flags.push((name.to_owned(), value)),
            }
        }
        self
    }

    /// Adds a variable of the environment, if it is set.
    pub fn with_variable(mut self, name: &str) -> Self {
        if let Ok(value) = std::env::var(name) {
            self.flags.push((name.to_owned(), value));
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
    if running.load().admin_detail != AdminDetail::Local {
        return;
    }
    let shown = Arc::clone(running);
    let flags = given.flags.clone();
    let pages =
        ZPages::new(build_info::VERSION, given.flags, move || configuration(&shown.load(), &flags));
    let pages = pages.with_connections(move |limit| connections.describe(limit));
    let pages = pages.with_caches(caches, metrics.events.clone());
    admin.set_zpages(pages.with_log(given.log));
}

/// Returns what `weir check` prints of a configuration. Secrets are in files of their own, of which
/// it has the paths alone.
fn configuration(config: &Config, flags: &[(String, String)]) -> Value {
    let file = serde_json::to_value(ConfigFile::from(config)).unwrap_or_default();
    json!({
        "kind": "Configz",
        "apiVersion": "weir.dev/v1alpha1",
        "hash": hash(config),
        "origins": origins::origins(config, flags),
        "configuration": file,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let none = given.with_variable("WEIR_A_VARIABLE_THAT_IS_NOT_SET");
        assert_eq!(none.flags.len(), 3);
    }

    /// So it has no secret that `weir check` would not print.
    #[test]
    fn configz_is_what_check_prints() {
        for name in ["weir.yaml", "sidecar.yaml", "gateway.yaml", "shedding.yaml"] {
            let path = format!("{}/config/{name}", env!("CARGO_MANIFEST_DIR"));
            let file = ConfigFile::read(path.as_ref()).unwrap();
            let config = Config::resolve(file, Overrides::default()).unwrap();
            let shown = configuration(&config, &[]);
            let printed = ConfigFile::from(&config).to_yaml().unwrap();
            let read = ConfigFile::parse(name, &printed).unwrap();
            assert_eq!(shown["configuration"], serde_json::to_value(read).unwrap(), "{name}");
            assert_eq!(shown["hash"].as_str().unwrap().len(), 16);
        }
    }
}
