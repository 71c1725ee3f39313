//! `weir top` and `weir doctor`: what the live page shows, in a terminal. They read `/api/…` of the
//! admin listeners of a running Weir's replicas (docs/decisions/operators-views.md).

pub(in crate::cli) mod ask;
pub(in crate::cli) mod bundle;
pub(in crate::cli) mod diagnosis;
mod exposition;
mod live;
mod merge;
mod replicas;
mod tables;

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::cli::failure::Failure;
use crate::cli::operator::ask::{ADMIN_DEFAULT, AdminUrl};
use crate::cli::operator::live::LiveScreen;
use crate::cli::operator::replicas::Replicas;
use crate::cli::operator::tables::SortColumn;
use crate::cli::screen::{Stdout, print_error};
use crate::flow::doctor::Rule;

/// Where a running Weir is asked, and how its answer is printed.
#[derive(Args, Clone, Debug)]
pub(super) struct AskArgs {
    /// The admin listener of a running Weir, also unix:///run/weir/admin.sock; kubectl port-forward
    /// reaches that of a pod. Repeat it for several replicas, whose answers become one
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
    /// On a terminal: the seconds after which it is shown again, until q or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = INTERVAL_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Show it once, also on a terminal
    #[arg(long)]
    once: bool,
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

/// Shows the state of a running Weir: once, or on a terminal until the user quits.
pub(super) async fn top(args: TopArgs) -> Result<(), Failure> {
    // The first answer decides whether there is a Weir.
    let mut text = show(&args).await.map_err(Failure::runtime)?;
    let mut stdout = Stdout::open();
    if args.once || args.ask.output == Output::Json || !stdout.is_terminal() {
        return stdout.print(&text).map_err(Failure::runtime);
    }
    let mut screen = LiveScreen::open(stdout).map_err(Failure::runtime)?;
    loop {
        screen.draw(&text).map_err(Failure::runtime)?;
        if screen.rest(Duration::from_secs(args.interval)).await {
            return Ok(());
        }
        text = show(&args).await.unwrap_or_else(|error| format!("No answer: {error:#}\n"));
    }
}

/// Shows what clients could do better. Fails with an exit code of its own if a finding is a warning
/// or worse, also one that is not printed for its `limit`.
pub(super) async fn doctor(args: DoctorArgs) -> Result<(), Failure> {
    let AskArgs { admin, limit, output } = &args.ask;
    // The rule and the exit code are about all findings.
    let Replicas { mut answers, note, failed } =
        replicas::ask(admin, &["findings"], FINDINGS_MAX.max(*limit))
            .await
            .map_err(Failure::runtime)?;
    let mut findings = answers.pop().unwrap_or_default();
    let mut warnings = 0;
    if let Some(items) = findings.get_mut("items").and_then(Value::as_array_mut) {
        if let Some(rule) = &args.rule {
            items.retain(|item| item.get("rule") == Some(&rule.as_str().into()));
        }
        let is_warning = |item: &&Value| item.get("weight").is_some_and(|weight| weight != "info");
        warnings = items.iter().filter(is_warning).count();
    }
    let text = match output {
        Output::Json => format!("{:#}\n", tables::cut(findings, *limit)),
        Output::Text => tables::findings(&findings, *limit) + &note,
    };
    Stdout::open().print(&text).map_err(Failure::runtime)?;
    match (warnings, failed.into_iter().next()) {
        (0, None) => Ok(()),
        // What a replica would have found is unknown.
        (0, Some(error)) => Err(Failure::runtime(error)),
        (count, _) => Err(Failure::findings(count)),
    }
}

async fn show(args: &TopArgs) -> anyhow::Result<String> {
    let kinds: &[&str] = match args.subject {
        Subject::All => &["overview", "caches", "clients", "reasons"],
        Subject::Caches => &["caches"],
        Subject::Clients => &["clients"],
        Subject::Reasons => &["reasons"],
        Subject::Events => &["events"],
        Subject::Limits => &["limits"],
    };
    let AskArgs { admin, limit, output } = &args.ask;
    // A table that is ordered here needs all rows, and so does one of several replicas.
    let needs_all = args.sort.is_some() || admin.len() > 1;
    let asked = if needs_all { ROWS_MAX.max(*limit) } else { *limit };
    let Replicas { answers, note, failed } = replicas::ask(admin, kinds, asked).await?;
    if *output == Output::Json {
        for error in failed {
            print_error(&format!("weir: {error:#}"));
        }
        let answer = match <[Value; 1]>::try_from(answers) {
            Ok([answer]) => answer,
            Err(answers) => Value::from(answers),
        };
        return Ok(format!("{answer:#}\n"));
    }
    let tables: Vec<_> = kinds
        .iter()
        .zip(&answers)
        .map(|(kind, answer)| tables::render(kind, answer, *limit, args.sort.as_ref()))
        .collect();
    Ok(tables.join("\n") + &note)
}

/// The figures change each ten seconds at most.
const INTERVAL_DEFAULT: u64 = 2;
/// The clients of a window.
const ROWS_MAX: usize = 200;
/// More than a Weir has.
const FINDINGS_MAX: usize = 10_000;
