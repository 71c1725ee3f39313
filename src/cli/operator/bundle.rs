//! `weir support-bundle`: the pages of a running Weir's admin listener in one archive, to send to
//! those who help.
//!
//! It has no object of the cluster, no token and no content of a file, since only the fields of a
//! list get in ([`allow`]); the manifest names the others. Names of users, agents, namespaces,
//! objects, addresses and paths are words, unless they are asked for.
//!
//! It writes what it gets: a page that cannot be read is a file `NAME.missing` with the status,
//! since a bundle is needed most where something is wrong. An archive above [`ARCHIVE_BYTES_MAX`]
//! goes without its longest files.

mod allow;
mod archive;

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::Args;
use http::StatusCode;

use crate::cli::failure::Failure;
use crate::cli::operator::ask::{ADMIN_DEFAULT, AdminUrl, Page};
use crate::cli::operator::bundle::allow::Allowed;
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
    /// Keep names and addresses, which are words otherwise
    #[arg(long)]
    with_names: bool,
    /// A secret from which the words are made: bundles of one key have the same words. Default: a
    /// new one for each bundle. Do not send it along
    #[arg(long, value_name = "TEXT", conflicts_with = "with_names")]
    key: Option<String>,
    /// How far apart the two snapshots of the metrics are
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=300))]
    interval: u64,
    /// On a terminal: write the archive without asking
    #[arg(short, long)]
    yes: bool,
}

/// A file of the archive.
type File = (String, Vec<u8>);

/// Prints the names of the files, and writes the archive. Asks before, on a terminal.
pub(in crate::cli) async fn run(args: BundleArgs) -> Result<(), Failure> {
    let path = &args.output;
    // Fails before the snapshots are taken, not after.
    if path.exists() {
        let error = anyhow::anyhow!("{} exists already", path.display());
        return Err(Failure::runtime(error));
    }
    let files = collect(&args).await.map_err(Failure::runtime)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (files, archive) = bounded(files, now.as_secs()).map_err(Failure::runtime)?;
    let mut stdout = Stdout::open();
    let listing = listing(path, &files, archive.len(), args.with_names);
    stdout.print(&listing).map_err(Failure::runtime)?;
    let asks = !args.yes && stdout.is_terminal() && io::stdin().is_terminal();
    if asks && !confirms(&mut stdout).map_err(Failure::runtime)? {
        print_error("weir: nothing was written");
        return Ok(());
    }
    archive::write(path, &archive)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Failure::runtime)
}

fn confirms(stdout: &mut Stdout) -> io::Result<bool> {
    stdout.print("Write it? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

async fn collect(args: &BundleArgs) -> anyhow::Result<Vec<File>> {
    let mut pages = args.admin.pages(PAGES.into_iter()).await?;
    print_error(&format!("weir: waiting {} s for the next metrics", args.interval));
    tokio::time::sleep(Duration::from_secs(args.interval)).await;
    let later = [(METRICS_LATER, "/metrics")].into_iter();
    pages.extend(
        args.admin
            .pages(later)
            .await
            .unwrap_or_else(|error| vec![Page { name: METRICS_LATER, answer: Err(error) }]),
    );
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| anyhow::anyhow!("no random numbers"))?;
    let key = args.key.as_ref().map_or(random.as_slice(), |key| key.as_bytes());
    let mut allowed = Allowed::new((!args.with_names).then_some(key));
    let mut files: Vec<_> = pages.into_iter().map(|page| file_of(page, &mut allowed)).collect();
    files.push(("weir/manifest.json".to_owned(), allowed.manifest().into_bytes()));
    Ok(files)
}

fn file_of(Page { name, answer }: Page<'_>, allowed: &mut Allowed) -> File {
    let reason = match answer {
        Ok((status, body))
            // A check of /readyz that fails is worth reading.
            if status == StatusCode::OK
                || (name == READYZ && status == StatusCode::INTERNAL_SERVER_ERROR) =>
        {
            let content = allowed.take(name, &String::from_utf8_lossy(&body));
            return (format!("weir/{name}"), content.into_bytes());
        }
        Ok((status, _)) => status.to_string(),
        Err(error) => {
            print_error(&format!("weir: {error:#}"));
            "no answer".to_owned()
        }
    };
    (format!("weir/{name}.missing"), format!("{reason}\n").into_bytes())
}

/// Returns the archive with at most [`ARCHIVE_BYTES_MAX`], and its files: without the longest ones
/// if they do not fit.
fn bounded(mut files: Vec<File>, modified: u64) -> io::Result<(Vec<File>, Vec<u8>)> {
    loop {
        let archive = archive::encode(modified, &files)?;
        let longest = files.iter_mut().max_by_key(|(_, content)| content.len());
        match longest {
            Some((name, content)) if archive.len() > ARCHIVE_BYTES_MAX && !content.is_empty() => {
                let text = format!("its {} bytes do not fit the archive\n", content.len());
                *content = if name.ends_with(".missing") { Vec::new() } else { text.into() };
                *name = format!("{}.missing", name.trim_end_matches(".missing"));
            }
            _ => return Ok((files, archive)),
        }
    }
}

fn listing(path: &Path, files: &[File], bytes: usize, with_names: bool) -> String {
    let mut text = format!("{}, {bytes} bytes:\n", path.display());
    for (name, content) in files {
        text.push_str(&format!("{:>9}  {name}\n", content.len()));
    }
    text.push_str(match with_names {
        true => "It has names of users, agents, namespaces, objects, addresses and paths.\n",
        false => {
            "It has listed fields alone; manifest.json names those that were left out. Names of\n\
             users, agents, namespaces and objects, addresses and paths are words; --with-names\n\
             keeps them. Look through it before you send it.\n"
        }
    });
    text
}

/// The name of a file, and the path of its page.
const PAGES: [(&str, &str); 17] = [
    ("flagz.txt", "/flagz"),
    ("configz.json", "/configz"),
    (READYZ, "/readyz?verbose"),
    ("metrics.txt", "/metrics"),
    ("slis.txt", "/metrics/slis"),
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
    // Only in shadow mode.
    ("shadow.json", "/api/shadow"),
    ("log-lines.jsonl", "/debug/log/lines"),
];
/// The metrics once more, so that there are rates.
const METRICS_LATER: &str = "metrics-later.txt";
/// Also read where it fails.
const READYZ: &str = "readyz.txt";
/// Fits a mail and an issue.
const ARCHIVE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_is_too_long_goes_without_its_longest_file() {
        let noise: Vec<u8> = (0..2 * ARCHIVE_BYTES_MAX).map(|_| fastrand::u8(..)).collect();
        let files =
            vec![("weir/a.txt".to_owned(), b"short".to_vec()), ("weir/b.txt".to_owned(), noise)];
        let (files, archive) = bounded(files, 1).unwrap();
        assert!(archive.len() < ARCHIVE_BYTES_MAX);
        assert_eq!(files[0], ("weir/a.txt".to_owned(), b"short".to_vec()));
        assert_eq!(files[1].0, "weir/b.txt.missing");
        assert!(String::from_utf8_lossy(&files[1].1).starts_with("its 2097152 bytes"));
    }

    #[test]
    fn a_page_that_cannot_be_read_is_a_file_with_the_reason() {
        let mut allowed = Allowed::new(None);
        let mut file = |name, answer| file_of(Page { name, answer }, &mut allowed);
        let unread = file("a.json", Err(anyhow::anyhow!("10.1.2.3 ended the connection")));
        assert_eq!(unread, ("weir/a.json.missing".to_owned(), b"no answer\n".to_vec()));
        let missing = file("a.json", Ok((StatusCode::NOT_FOUND, "10.1.2.3".into())));
        assert_eq!(missing.1, b"404 Not Found\n");
        let failed = Ok((StatusCode::INTERNAL_SERVER_ERROR, "x".into()));
        assert_eq!(file(READYZ, failed).0, "weir/readyz.txt");
    }
}
