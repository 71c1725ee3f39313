//! Generates completions, manual pages and the schema of the configuration file from the command
//! line and the configuration themselves, so that they cannot differ.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use crate::app::build_info;
use crate::cli::failure::Failure;
use crate::cli::screen::Stdout;
use crate::config::schema;

/// Prints the completion script of a shell.
pub(super) fn completions(shell: Shell, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, NAME, &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes weir(1), one page for each command, and weir.yaml(5).
pub(super) fn man(directory: &Path, command: Command) -> Result<(), Failure> {
    let write = || -> anyhow::Result<()> {
        fs::create_dir_all(directory)?;
        clap_mangen::generate_to(command, directory)?;
        fs::write(directory.join("weir.yaml.5"), configuration_page())?;
        Ok(())
    };
    let context = || format!("cannot write manual pages to {}", directory.display());
    write().with_context(context).map_err(Failure::runtime)
}

/// Prints the JSON Schema of the configuration file.
pub(super) fn schema() -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&schema::json_schema()).map_err(Failure::runtime)?;
    print(&format!("{text}\n"))
}

fn print(text: &str) -> Result<(), Failure> {
    Stdout::open().print(text).map_err(Failure::runtime)
}

/// weir.yaml(5): each setting with its description.
fn configuration_page() -> String {
    let mut page = format!(
        ".TH WEIR.YAML 5 \"\" \"weir {}\"\n.SH NAME\nweir.yaml \\- configuration of weir\n\
         .SH DESCRIPTION\nThe YAML file that\n.B weir serve \\-\\-config\nreads.\n\
         .B weir check\nreports what is wrong with one.\n.SH SETTINGS\n",
        build_info::VERSION
    );
    for setting in schema::settings() {
        let (path, about) = (escaped(&setting.path), escaped(&setting.about));
        page.push_str(&format!(".TP\n.B {path}\n{about}\n"));
    }
    page.push_str(".SH SEE ALSO\n.BR weir (1)\n");
    page
}

/// Text that roff takes as it is: no line begins with a control character.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\n', " ");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

const NAME: &str = "weir";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_configuration_has_each_setting() {
        let page = configuration_page();
        assert!(page.contains("\n.TP\n.B cache.totalBytesMax\n"), "{page}");
        assert!(page.lines().all(|line| !line.starts_with('\'') && !line.ends_with(' ')), "{page}");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped(".a-b\\c\n'd"), "\\&.a\\-b\\ec 'd");
    }
}
