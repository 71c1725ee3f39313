//! `weir top` and `weir doctor`: what the live page shows, in a terminal. They read `/api/…` of the
//! admin listeners of a running Weir's replicas (docs/decisions/operators-views.md).

pub(in crate::cli) mod ask;
pub(in crate::cli) mod bundle;
pub(in crate::cli) mod diagnosis;
mod exposition;
mod tables;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::cli::failure::Failure;
use crate::cli::operator::ask::{ADMIN_DEFAULT, AdminUrl};
use crate::cli::operator::tables::SortColumn;
use crate::cli::screen::{Stdout, print_error, printable};
use crate::flow::doctor::Rule;

/// Where a running Weir is asked, and how its answer is printed.
#[derive(Args, Clone, Debug)]
pub(super) struct AskArgs {
    /// The admin listener of a running Weir, also unix:///run/weir/admin.sock; kubectl port-forward
    /// reaches that of a pod. Repeat it for several replicas, which are shown one after another
    #[arg(long, value_name = "URL", default_value = ADMIN_DEFAULT)]
    admin: Vec<AdminUrl>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// The most rows of each table
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

/// Flags of `top`.
#[derive(Args, Clone, Debug)]
pub(super) struct TopArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// What is shown
    #[arg(value_enum, default_value_t = Subject::All)]
    subject: Subject,
    /// Order tables by the column with this head, such as bytes/s: the largest first
    #[arg(long, value_name = "COLUMN")]
    sort: Option<SortColumn>,
}

/// Flags of `doctor`.
#[derive(Args, Clone, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Only findings of this rule
    #[arg(long, value_name = "RULE",
        value_parser = PossibleValuesParser::new(Rule::ALL.map(Rule::as_str)))]
    rule: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// The verdict, and all that follows
    All,
    /// The caches
    Caches,
    /// The clients by cost
    Clients,
    /// Why requests are not answered from a cache
    Reasons,
    /// The last notable events
    Events,
    /// What is used of each limit
    Limits,
}

/// Shows the state of a running Weir.
pub(super) async fn top(args: TopArgs) -> Result<(), Failure> {
    let kinds: &[&str] = match args.subject {
        Subject::All => &["overview", "caches", "clients", "reasons"],
        Subject::Caches => &["caches"],
        Subject::Clients => &["clients"],
        Subject::Reasons => &["reasons"],
        Subject::Events => &["events"],
        Subject::Limits => &["limits"],
    };
    let AskArgs { limit, output, .. } = args.ask;
    // A table that is ordered here needs all rows.
    let asked = if args.sort.is_some() { ROWS_MAX.max(limit) } else { limit };
    let render = |answers: Vec<Value>| {
        if output == Output::Json {
            let answer = match <[Value; 1]>::try_from(answers) {
                Ok([answer]) => answer,
                Err(answers) => Value::from(answers),
            };
            return format!("{answer:#}\n");
        }
        let tables = kinds
            .iter()
            .zip(&answers)
            .map(|(kind, answer)| tables::render(kind, answer, limit, args.sort.as_ref()));
        tables.collect::<Vec<_>>().join("\n")
    };
    print_each(&args.ask, kinds, asked, render).await
}

/// Shows what clients could do better. Fails with an exit code of its own if a finding is a warning
/// or worse, also one that is not printed for its `limit`.
pub(super) async fn doctor(args: DoctorArgs) -> Result<(), Failure> {
    let AskArgs { limit, output, .. } = args.ask;
    let mut warnings = 0;
    let render = |answers: Vec<Value>| {
        let mut findings = answers.into_iter().next().unwrap_or_default();
        if let Some(items) = findings.get_mut("items").and_then(Value::as_array_mut) {
            if let Some(rule) = &args.rule {
                items.retain(|item| item.get("rule") == Some(&rule.as_str().into()));
            }
            let is_warning =
                |item: &&Value| item.get("weight").is_some_and(|weight| weight != "info");
            warnings += items.iter().filter(is_warning).count();
        }
        match output {
            Output::Json => format!("{:#}\n", tables::cut(findings, limit)),
            Output::Text => tables::findings(&findings, limit),
        }
    };
    // The rule and the exit code are about all findings.
    let printed = print_each(&args.ask, &["findings"], FINDINGS_MAX.max(limit), render).await;
    match warnings {
        // The findings of a replica that did not answer are unknown.
        0 => printed,
        count => Err(Failure::findings(count)),
    }
}

/// Prints what each replica answers; several have a heading in a text. Fails if one does not
/// answer, after the others are printed.
async fn print_each(
    ask: &AskArgs,
    kinds: &[&str],
    limit: usize,
    mut render: impl FnMut(Vec<Value>) -> String,
) -> Result<(), Failure> {
    let count = ask.admin.len();
    let has_headings = count > 1 && ask.output == Output::Text;
    let mut stdout = Stdout::open();
    let mut failed = 0;
    for url in &ask.admin {
        match url.kinds(kinds, limit).await {
            Ok(answers) => {
                let heading = if has_headings { heading(url, &answers) } else { String::new() };
                stdout.print(&(heading + &render(answers))).map_err(Failure::runtime)?;
            }
            Err(error) if count == 1 => return Err(Failure::runtime(error)),
            Err(error) => {
                print_error(&format!("weir: {error:#}"));
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::runtime(anyhow!("{failed} of {count} replicas did not answer"))),
    }
}

/// Returns the line above the answers of a replica: its host, which is the pod, and its address.
fn heading(url: &AdminUrl, answers: &[Value]) -> String {
    let instance = answers.iter().find_map(|answer| answer.get("instance")?.as_str());
    format!("== {} ({url})\n", printable(instance.unwrap_or("unnamed")))
}

/// The clients of a window.
const ROWS_MAX: usize = 200;
/// More than a Weir has.
const FINDINGS_MAX: usize = 10_000;
