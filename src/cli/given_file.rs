//! A configuration file that a command is given. If it is faulty, all its problems are reported.

use std::path::Path;

use crate::cli::failure::Failure;
use crate::cli::screen::print_error;
use crate::config::Config;
use crate::config::file::ConfigFile;
use crate::config::resolve::{Overrides, Problems};

/// A configuration file.
#[derive(Debug)]
pub(super) struct GivenFile {
    name: String,
    file: ConfigFile,
}

impl GivenFile {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = ConfigFile::read_text(path).map_err(Failure::usage)?;
        let file = ConfigFile::parse(&name, &text).map_err(Failure::usage)?;
        Ok(Self { name, file })
    }

    /// Returns the configuration, with these overrides. Prints all problems, each on its line, and
    /// returns the last as the failure.
    pub(super) fn resolve(&self, overrides: Overrides) -> Result<Config, Failure> {
        Config::resolve(self.file.clone(), overrides).map_err(|Problems(problems)| {
            let line = |problem| format!("{}:{problem}", self.name);
            let mut lines: Vec<_> = problems.iter().map(line).collect();
            let last = lines.pop().unwrap_or_default();
            for line in lines {
                print_error(&format!("weir: {line}"));
            }
            Failure::usage(anyhow::anyhow!(last))
        })
    }
}
