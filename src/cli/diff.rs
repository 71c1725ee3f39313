//! `weir check --diff OLD NEW`: which fields a running Weir would take over from a changed file,
//! and which need a restart (`docs/decisions/configuration.md`).
//!
//! The comparison is the one of a reload, so that both say the same. Flags are not known here: a
//! field that a flag of the running Weir sets may be named although nothing will change.

use std::path::Path;

use crate::cli::failure::Failure;
use crate::cli::given_file::GivenFile;
use crate::cli::screen::Stdout;
use crate::config::Config;
use crate::config::reload::Changes;
use crate::config::resolve::Overrides;

/// Prints a line for each field that differs, and fails if one needs a restart.
pub(super) fn run(old: &Path, new: &Path) -> Result<(), Failure> {
    let (_, changes) = read(old)?.reloaded(&read(new)?);
    Stdout::open().print(&lines(&changes)).map_err(Failure::runtime)?;
    match changes.pending.len() {
        0 => Ok(()),
        count => Err(Failure::restart(count)),
    }
}

fn read(path: &Path) -> Result<Config, Failure> {
    GivenFile::read(path)?.resolve(Overrides::default())
}

fn lines(changes: &Changes) -> String {
    let live = changes.applied.iter().map(|path| format!("live     {path}\n"));
    live.chain(changes.pending.iter().map(|path| format!("restart  {path}\n"))).collect()
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::*;

    #[test]
    fn each_differing_field_is_named_and_a_restart_fails() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
            let path = dir.path().join(name);
            std::fs::write(&path, format!("{head}{text}\n")).unwrap();
            path
        };
        let old = write("old.yaml", "");
        let live = write("live.yaml", "cache: { maxStaleness: 7m }");
        let both = write("both.yaml", "cache: { maxStaleness: 7m, forwardBudget: 9 }");
        let wrong = write("wrong.yaml", "cache: { forwardBudget: 0 }");
        let changes = read(&old).unwrap().reloaded(&read(&both).unwrap()).1;
        assert_eq!(lines(&changes), "live     cache.maxStaleness\nrestart  cache.forwardBudget\n");
        let code = |new: &Path| run(&old, new).map_err(|failure| failure.exit_code());
        assert_eq!(code(&old), Ok(()));
        assert_eq!(code(&live), Ok(()));
        assert_eq!(code(&both), Err(ExitCode::from(3)));
        assert_eq!(code(&wrong), Err(ExitCode::from(2)));
    }
}
