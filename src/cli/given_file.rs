//! A configuration file that a command is given. If it is faulty, all its faults are reported.

use std::path::Path;

use crate::cli::failure::Failure;
use crate::cli::screen::print_error;
use crate::config::Config;
use crate::config::faults::faults;
use crate::config::file::{ConfigFile, FileError};
use crate::config::resolve::Overrides;

/// A configuration file.
#[derive(Debug)]
pub(super) struct GivenFile {
    name: String,
    /// Its text, in which faults have their places.
    text: String,
    file: ConfigFile,
}

impl GivenFile {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = ConfigFile::read_text(path).map_err(Failure::usage)?;
        match ConfigFile::parse(&name, &text) {
            Ok(file) => Ok(Self { name, text, file }),
            Err(error @ FileError::Syntax { .. }) => Err(all_faults(&name, &text, error.into())),
            // It is another kind of file, with other fields.
            Err(error) => Err(Failure::usage(error)),
        }
    }

    /// Returns the configuration, with these overrides.
    pub(super) fn resolve(&self, overrides: Overrides) -> Result<Config, Failure> {
        let Self { name, text, file } = self;
        Config::resolve(file.clone(), overrides).map_err(|problems| {
            all_faults(name, text, anyhow::Error::new(problems).context(name.clone()))
        })
    }
}

/// Prints all faults of a text, each on its line, and returns the last as the failure. Where none
/// is found, `error` is all that is known.
fn all_faults(name: &str, text: &str, error: anyhow::Error) -> Failure {
    let mut faults = faults(text);
    let Some(last) = faults.pop() else { return Failure::usage(error) };
    for fault in faults {
        print_error(&format!("weir: {name}:{fault}"));
    }
    Failure::usage(anyhow::anyhow!("{name}:{last}"))
}
