//! Where each value of the configuration comes from: the command, a flag, the file, or the default.
//!
//! A value of the file that equals the default counts as the default. Budgets that fit the memory
//! limit of this process are defaults too.

use serde_json::{Map, Value};

use crate::app::cgroup::Limits;
use crate::config::Config;

/// Returns the origin of each value, by its path.
pub(super) fn origins(
    config: &Config,
    command: &str,
    flags: &[(String, String)],
) -> Map<String, Value> {
    let values = config.flattened();
    let memory_limit = Limits::from_current_process().memory_bytes();
    let defaults = Config::default_for(config.authentication.mode, memory_limit).flattened();
    let is_given = |path: &str| {
        FLAGS
            .iter()
            .any(|(flag, setting)| *setting == path && flags.iter().any(|(given, _)| given == flag))
    };
    let origin = |path: &str, value: &Value| {
        if COMMANDS.contains(&(command, path)) {
            "command"
        } else if is_given(path) {
            "flag"
        } else if defaults.get(path) == Some(value) {
            "default"
        } else {
            "file"
        }
    };
    values.iter().map(|(path, value)| (path.clone(), origin(path, value).into())).collect()
}

/// The flags and variables that replace values, by the names that `/flagz` shows.
const FLAGS: [(&str, &str); 6] = [
    ("listen", "server.listeners"),
    ("admin-listen", "admin.listen"),
    ("kubeconfig", "upstream.kubeconfig"),
    ("log-format", "logging.format"),
    ("log-filter", "logging.filter"),
    ("WEIR_LOG", "logging.filter"),
];

/// The commands that replace a value, whatever the file says.
const COMMANDS: [(&str, &str); 1] = [("shadow", "shadow.mode")];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::ConfigFile;
    use crate::config::resolve::Overrides;

    #[test]
    fn each_value_has_its_origin() {
        let text = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\nauthentication: {mode: gateway}\ncache: {maxStaleness: 17m}\n";
        let file = ConfigFile::parse("test", text).unwrap();
        let overrides = Overrides { log_filter: Some("debug".to_owned()), ..Overrides::default() };
        let config = Config::resolve(file, overrides).unwrap();
        let flags = [("log-filter".to_owned(), "debug".to_owned())];
        assert_eq!(origins(&config, "shadow", &flags)["shadow.mode"], "command");
        let origins = origins(&config, "serve", &flags);
        assert_eq!(origins["shadow.mode"], "default");
        assert_eq!(origins["logging.filter"], "flag");
        assert_eq!(origins["cache.maxStaleness"], "file");
        for path in ["authentication.mode", "flowControl.mode", "server.listeners"] {
            assert_eq!(origins[path], "default", "{path}");
        }
        assert_eq!(origins.len(), config.flattened().len());
    }
}
