//! `weir support-bundle`: the pages of a running Weir's admin listener in one archive, to send to
//! those who help.
//!
//! It has no object of the cluster, no token and no content of a file: the admin listener has none
//! of these, and neither has the log. Names of users and addresses are replaced by words, unless
//! they are asked for.

mod archive;
mod redact;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::Args;
use http::StatusCode;
use serde_json::Value;

use crate::cli::failure::Failure;
use crate::cli::operator::ask::{ADMIN_DEFAULT, AdminUrl};
use crate::cli::operator::bundle::redact::Redactor;
use crate::cli::screen::{Stdout, print_error};

/// Flags of `support-bundle`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct BundleArgs {
    /// The archive to write, a .tar.gz; it must not exist
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The admin listener of a running Weir, also unix:///run/weir/admin.sock; kubectl port-forward
    /// reaches that of a pod
    #[arg(long, value_name = "URL", default_value = ADMIN_DEFAULT)]
    admin: AdminUrl,
    /// Keep the names of users and addresses, which are words otherwise
    #[arg(long)]
    with_names: bool,
    /// How far apart the two snapshots of the metrics are
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=300))]
    interval: u64,
    /// Record a CPU profile of this length too
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    profile: Option<u64>,
}

/// Writes the archive, and prints the names of its files.
pub(in crate::cli) async fn run(args: BundleArgs) -> Result<(), Failure> {
    let files = collect(&args).await.map_err(Failure::runtime)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let path = &args.output;
    archive::write(path, now.as_secs(), &files)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Failure::runtime)?;
    Stdout::open().print(&listing(path, &files, args.with_names)).map_err(Failure::runtime)
}

async fn collect(args: &BundleArgs) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    let mut redactor = Redactor::default();
    let first = PAGES.iter().map(|(name, path)| (*name, *path));
    let mut answers = args.admin.pages(first).await?;
    print_error(&format!("weir: waiting {} s for the next metrics", args.interval));
    tokio::time::sleep(Duration::from_secs(args.interval)).await;
    answers.extend(args.admin.pages([("metrics-later.txt", "/metrics")].into_iter()).await?);
    if let Some(seconds) = args.profile {
        print_error(&format!("weir: recording a CPU profile for {seconds} s"));
        let (status, body) = args.admin.profile(Duration::from_secs(seconds)).await?;
        answers.push(("profile.pb.gz", status, body));
    }
    for (name, status, body) in answers {
        // A check of /readyz that fails is worth reading.
        let is_page = status == StatusCode::OK
            || (status == StatusCode::INTERNAL_SERVER_ERROR && name == READYZ);
        if !is_page {
            let text = format!("{status}: {}", String::from_utf8_lossy(&body));
            files.push((format!("weir/{name}.missing"), text.into_bytes()));
            continue;
        }
        let mut content = body.to_vec();
        if name.ends_with(".json") && !args.with_names {
            let mut value: Value =
                serde_json::from_slice(&body).with_context(|| format!("{name} is not JSON"))?;
            redactor.redact(&mut value);
            content = format!("{value:#}\n").into_bytes();
        }
        if name == LOG_LINES && !args.with_names {
            content = redactor.redact_lines(&String::from_utf8_lossy(&body)).into_bytes();
        }
        files.push((format!("weir/{name}"), content));
    }
    Ok(files)
}

fn listing(path: &Path, files: &[(String, Vec<u8>)], with_names: bool) -> String {
    let mut text = format!("{}:\n", path.display());
    for (name, content) in files {
        text.push_str(&format!("{:>9}  {name}\n", content.len()));
    }
    text.push_str(match with_names {
        true => "It has names of users and addresses.\n",
        false => "Names of users and addresses are replaced by words; --with-names keeps them.\n",
    });
    text
}

const READYZ: &str = "readyz.txt";
const LOG_LINES: &str = "log-lines.jsonl";

/// The pages of a bundle, and the names of their files. The lines of the log come last, since the
/// names in the other pages are replaced in them too.
const PAGES: [(&str, &str); 16] = [
    ("statusz.txt", "/statusz"),
    ("flagz.txt", "/flagz"),
    ("configz.json", "/configz"),
    (READYZ, "/readyz?verbose"),
    ("metrics.txt", "/metrics"),
    ("memory.json", "/debug/memory"),
    ("log.json", "/debug/log"),
    ("connections.json", "/debug/connections?limit=1000"),
    ("overview.json", "/api/overview"),
    ("caches.json", "/api/caches"),
    ("clients.json", "/api/clients?limit=200"),
    ("findings.json", "/api/findings?limit=200"),
    ("reasons.json", "/api/reasons"),
    ("events.json", "/api/events"),
    ("limits.json", "/api/limits"),
    (LOG_LINES, "/debug/log/lines"),
];
