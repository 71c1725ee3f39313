//! `weir top` and `weir doctor`: what the live page shows, in a terminal. They read `/api/…` of a
//! running Weir's admin listener.

mod tables;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use http::StatusCode;
use serde_json::Value;

use crate::cli::failure::Failure;
use crate::cli::http::Connection;
use crate::cli::screen::Stdout;

/// Where a running Weir is asked, and how its answer is printed.
#[derive(Args, Clone, Debug)]
pub(super) struct AskArgs {
    /// The admin listener of a running Weir; kubectl port-forward reaches that of a pod
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:6441")]
    admin: AdminUrl,
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
    /// Show it again each so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

/// Flags of `doctor`.
#[derive(Args, Clone, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// Only findings of this rule, such as poll-list
    #[arg(long, value_name = "RULE")]
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

/// The address of a plain HTTP listener.
#[derive(Clone, Debug)]
struct AdminUrl(SocketAddr);

impl FromStr for AdminUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let address = address.replace("localhost:", "127.0.0.1:");
        let address = address
            .parse()
            .map_err(|_| format!("{text} is not an address such as http://127.0.0.1:6441"))?;
        Ok(Self(address))
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// Shows the state of a running Weir, once or until it is interrupted.
pub(super) async fn top(args: TopArgs) -> Result<(), Failure> {
    let mut screen = Stdout::open();
    loop {
        let text = show(&args).await.map_err(Failure::runtime)?;
        let clear = if args.watch.is_some() && screen.is_terminal() { "\x1b[2J\x1b[H" } else { "" };
        screen.print(&format!("{clear}{text}")).map_err(Failure::runtime)?;
        let Some(seconds) = args.watch else { return Ok(()) };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

/// Shows what clients could do better. Fails with an exit code of its own if a finding is a warning
/// or worse.
pub(super) async fn doctor(args: DoctorArgs) -> Result<(), Failure> {
    let findings = diagnose(&args).await.map_err(Failure::runtime)?;
    let text = match args.ask.output {
        Output::Json => format!("{findings:#}\n"),
        Output::Text => tables::findings(&findings),
    };
    Stdout::open().print(&text).map_err(Failure::runtime)?;
    let items = findings.get("items").and_then(Value::as_array);
    let is_warning = |item: &Value| item.get("weight").is_some_and(|weight| weight != "info");
    match items.map(|items| items.iter().filter(|item| is_warning(item)).count()) {
        None | Some(0) => Ok(()),
        Some(count) => Err(Failure::findings(count)),
    }
}

async fn diagnose(args: &DoctorArgs) -> anyhow::Result<Value> {
    let mut findings = ask(&args.ask, &["findings"]).await?.pop().unwrap_or_default();
    if let Some(rule) = &args.rule {
        let items = findings.get_mut("items").and_then(Value::as_array_mut);
        items
            .context("an answer without items")?
            .retain(|item| item.get("rule") == Some(&rule.as_str().into()));
    }
    Ok(findings)
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
    let answers = ask(&args.ask, kinds).await?;
    if args.ask.output == Output::Json {
        let answer = match <[Value; 1]>::try_from(answers) {
            Ok([one]) => one,
            Err(all) => Value::from(all),
        };
        return Ok(format!("{answer:#}\n"));
    }
    let tables: Vec<_> = kinds
        .iter()
        .zip(&answers)
        .map(|(kind, answer)| tables::of(kind, answer, args.ask.limit))
        .collect();
    Ok(tables.join("\n"))
}

/// Reads kinds of the API of a running Weir.
async fn ask(args: &AskArgs, kinds: &[&str]) -> anyhow::Result<Vec<Value>> {
    let AskArgs { admin, limit, .. } = args;
    let agent = concat!("weir/", env!("CARGO_PKG_VERSION"));
    let mut connection = Connection::open(admin.0, agent).await.with_context(|| {
        format!("cannot connect to {admin}; does Weir run, and is this its admin listener?")
    })?;
    let mut answers = Vec::new();
    for kind in kinds {
        let query = if matches!(*kind, "clients" | "findings") {
            format!("?limit={limit}")
        } else {
            String::new()
        };
        let path = format!("/api/{kind}{query}");
        let read = connection.read(&path, "application/json", ANSWER_BYTES_MAX).await;
        let (status, body) = read.with_context(|| format!("cannot read {admin}{path}"))?;
        let text = String::from_utf8_lossy(&body);
        match status {
            StatusCode::OK => answers.push(serde_json::from_slice(&body)?),
            // Costs are not added up. All else can be shown.
            StatusCode::NOT_FOUND if kinds.len() > 1 => answers.push(Value::Null),
            _ => bail!("{admin}{path} was answered with {status}: {}", text.trim()),
        }
    }
    Ok(answers)
}

/// Some thousand caches.
const ANSWER_BYTES_MAX: usize = 64 << 20;
