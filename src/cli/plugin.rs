//! This binary as a plugin of kubectl: under the name `kubectl-weir` on the path, it is
//! `kubectl weir`, and under `kubectl_complete-weir` it completes the command line of that.
//!
//! kubectl runs the latter with the words of the command line, and completes the last one. It reads
//! a candidate from each line, with its description after a tab. The last line is a directive of
//! cobra.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Arg, Command};

/// The role of this process, by the name under which it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `weir`, or any other name.
    Weir,
    /// `kubectl-weir`.
    Plugin,
    /// `kubectl_complete-weir`.
    Completion,
}

/// The name of the plugin in help texts.
pub(super) const NAME: &str = "kubectl weir";

/// Returns the role of a process with this first argument.
pub fn role(program: Option<&OsStr>) -> Role {
    let name = program.and_then(|program| Path::new(program).file_name()?.to_str());
    match name {
        Some("kubectl-weir") => Role::Plugin,
        Some("kubectl_complete-weir") => Role::Completion,
        _ => Role::Weir,
    }
}

/// Returns the candidates for the last of the words of a command line.
pub(super) fn completions(mut command: Command, words: &[String]) -> String {
    command.build();
    let (last, before) = words.split_last().map_or(("", words), |(last, before)| (last, before));
    let mut current = &command;
    for word in before {
        current = current.find_subcommand(word).unwrap_or(current);
    }
    let flag = before.last().and_then(|word| flag_with_value(current, word));
    let candidates = match flag {
        Some(flag) => values(flag),
        None if last.starts_with('-') => flags(current),
        None => {
            let mut candidates = subcommands(current);
            candidates.extend(current.get_positionals().flat_map(values));
            candidates
        }
    };
    let fitting = candidates.iter().filter(|candidate| candidate.starts_with(last));
    let mut text: String = fitting.map(|candidate| format!("{candidate}\n")).collect();
    // Where there are none, a file may be meant.
    text.push_str(if text.is_empty() { FILES } else { NO_FILES });
    text
}

/// Returns the flag of a word, if a value follows it.
fn flag_with_value<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let is_named = |arg: &&Arg| {
        let long = arg.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
        long || arg.get_short().is_some_and(|short| word == format!("-{short}"))
    };
    command.get_arguments().find(is_named).filter(|arg| arg.get_action().takes_values())
}

fn flags(command: &Command) -> Vec<String> {
    let flag = |arg: &Arg| Some(described(&format!("--{}", arg.get_long()?), arg.get_help()));
    command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(flag).collect()
}

fn subcommands(command: &Command) -> Vec<String> {
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    commands.map(|command| described(command.get_name(), command.get_about())).collect()
}

fn values(arg: &Arg) -> Vec<String> {
    let values = arg.get_possible_values();
    values.iter().map(|value| described(value.get_name(), value.get_help())).collect()
}

fn described(name: &str, description: Option<&clap::builder::StyledStr>) -> String {
    match description.map(ToString::to_string) {
        Some(text) => format!("{name}\t{}", text.lines().next().unwrap_or_default()),
        None => name.to_owned(),
    }
}

/// cobra's ShellCompDirectiveDefault and ShellCompDirectiveNoFileComp.
const FILES: &str = ":0\n";
const NO_FILES: &str = ":4\n";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn names(words: &[&str]) -> Vec<String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let text = completions(Cli::command(), &words);
        text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_role_is_that_of_the_name() {
        let of = |program: &str| role(Some(OsStr::new(program)));
        assert_eq!(of("/usr/local/bin/kubectl-weir"), Role::Plugin);
        assert_eq!(of("kubectl_complete-weir"), Role::Completion);
        assert_eq!(of("/opt/kubectl/weir"), Role::Weir);
        assert_eq!(role(None), Role::Weir);
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        assert_eq!(names(&["doc"]), ["doctor", ":4"]);
        assert!(names(&[""]).contains(&"support-bundle".to_owned()));
        assert_eq!(names(&["top", "ca"]), ["caches", ":4"]);
        assert_eq!(names(&["doctor", "--ru"]), ["--rule", ":4"]);
        assert_eq!(names(&["doctor", "--rule", "poll-l"]), ["poll-list", ":4"]);
        assert_eq!(names(&["top", "-o", ""]), ["text", "json", ":4"]);
        assert_eq!(names(&["check", "./"]), [":0"], "files");
    }
}
