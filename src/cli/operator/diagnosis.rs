//! `weir check --live`: what is wrong with a running Weir and what is around it, each with where to
//! read on. It reads `/readyz` and `/metrics` of the admin listener, which need no rights.

use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use http::StatusCode;

use crate::cli::failure::Failure;
use crate::cli::operator::ask::AdminUrl;
use crate::cli::operator::exposition::samples;
use crate::cli::screen::{Stdout, printable};

/// A health check that is asked alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Probe {
    /// Whether clients should be sent to it
    Readyz,
    /// Whether it should be restarted
    Livez,
}

/// One line of the report.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Good(String),
    /// A fact to know; nothing is wrong.
    Note(String),
    /// A fault, and the page of the documentation about it.
    Wrong(String, &'static str),
}

/// Fails if a running Weir is not live or not ready, or does not answer in time.
pub(in crate::cli) async fn probe(admin: &AdminUrl, probe: Probe) -> Result<(), Failure> {
    let path = match probe {
        Probe::Readyz => "/readyz",
        Probe::Livez => "/livez",
    };
    let (status, body) = admin.page_within(path, PROBE_TIMEOUT).await.map_err(Failure::runtime)?;
    if status == StatusCode::OK {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&body);
    Err(Failure::runtime(anyhow::anyhow!("{path}: {}", failing(&body).join("; "))))
}

/// Prints how a running Weir is. Fails if something is wrong.
pub(in crate::cli) async fn run(admin: &AdminUrl) -> Result<(), Failure> {
    let read = async |path| -> anyhow::Result<String> {
        let (_, body) = admin.page_within(path, PAGE_TIMEOUT).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    let ready = read("/readyz?verbose").await.map_err(Failure::runtime)?;
    let metrics = read("/metrics").await.map_err(Failure::runtime)?;
    let lines = report(&ready, &metrics, SystemTime::now());
    Stdout::open().print(&text(&lines)).map_err(Failure::runtime)?;
    match lines.iter().filter(|line| matches!(line, Line::Wrong(..))).count() {
        0 => Ok(()),
        count => Err(Failure::runtime(anyhow::anyhow!("{count} of {} checks fail", lines.len()))),
    }
}

fn text(lines: &[Line]) -> String {
    // Versions and causes come from the API server.
    let line = |line: &Line| match line {
        Line::Good(text) => format!("ok     {}\n", printable(text)),
        Line::Note(text) => format!("note   {}\n", printable(text)),
        Line::Wrong(text, page) => {
            format!("WRONG  {}\n       see {DOCUMENTATION}{page}\n", printable(text))
        }
    };
    lines.iter().map(line).collect()
}

fn report(ready: &str, metrics: &str, now: SystemTime) -> Vec<Line> {
    let mut lines = health(ready);
    lines.extend(version(metrics));
    lines.push(clock(metrics));
    lines.push(rights(metrics));
    lines.extend(certificates(metrics, now));
    lines.extend(reload(metrics));
    lines
}

fn health(ready: &str) -> Vec<Line> {
    let failing = failing(ready);
    if failing.is_empty() {
        let count = ready.lines().filter(|line| line.starts_with("[+]")).count();
        return vec![Line::Good(format!("health: all {count} checks of /readyz pass"))];
    }
    let wrong = |failure: String| {
        let page = match failure.split(':').next() {
            Some("upstream" | "discovery") => "runbooks/WeirUpstreamUnreachable.md",
            Some("warm-caches") => "runbooks/WeirCacheNotFollowing.md",
            Some("startup" | "shutdown") => "runbooks/WeirDown.md",
            _ => "reference/admin.md#for-everybody-who-can-connect",
        };
        Line::Wrong(format!("health: {failure}"), page)
    };
    failing.into_iter().map(wrong).collect()
}

/// Returns the checks that fail, with their reasons.
fn failing(report: &str) -> Vec<String> {
    let failed = report.lines().filter_map(|line| line.strip_prefix("[-]"));
    failed.map(|line| line.replacen(" failed: ", ": ", 1)).collect()
}

fn version(metrics: &str) -> Vec<Line> {
    let versions: Vec<_> = samples(metrics, "weir_upstream_info")
        .filter_map(|(labels, _)| value_of(&labels, "version"))
        .collect();
    if versions.is_empty() {
        let text = "API server: it has not answered with its version yet".to_owned();
        return vec![Line::Wrong(text, "runbooks/WeirUpstreamUnreachable.md")];
    }
    let line = |version: &str| match minor(version) {
        Some(minor) if minor < MINOR_OLDEST => Line::Wrong(
            format!("API server: {version} is older than 1.{MINOR_OLDEST}"),
            "decisions/exact-lists-and-pages.md",
        ),
        Some(minor) if minor > MINOR_NEWEST => Line::Note(format!(
            "API server: {version} is newer than 1.{MINOR_NEWEST}, the last one that this Weir was tested with"
        )),
        _ => Line::Good(format!("API server: {version}")),
    };
    versions.into_iter().map(line).collect()
}

/// Returns 36 of v1.36.2.
fn minor(version: &str) -> Option<u32> {
    let rest = version.trim_start_matches('v').strip_prefix("1.")?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

fn clock(metrics: &str) -> Line {
    match first(metrics, "weir_upstream_clock_skew_seconds") {
        None => Line::Note("clock: this Weir does not compare it".to_owned()),
        Some(seconds) if seconds.abs() > SKEW_SECONDS_MAX => {
            let way = if seconds > 0.0 { "ahead of" } else { "behind" };
            let seconds = seconds.abs();
            Line::Wrong(
                format!(
                    "clock: {seconds} s {way} the API server's: tokens and certificates may be refused. Synchronize the clocks (NTP) of both hosts"
                ),
                "reference/admin.md#the-command-line",
            )
        }
        Some(_) => Line::Good("clock: as the API server's".to_owned()),
    }
}

fn rights(metrics: &str) -> Line {
    let missing = samples(metrics, "weir_missing_permissions").filter(|(_, value)| *value > 0.0);
    let missing: Vec<_> =
        missing.filter_map(|(labels, _)| value_of(&labels, "permission")).collect();
    match missing.is_empty() {
        true => Line::Good("rights: none is missing".to_owned()),
        false => Line::Wrong(
            format!("rights: Weir's own identity lacks {}", missing.join(", ")),
            "runbooks/WeirMissingRights.md",
        ),
    }
}

fn certificates(metrics: &str, now: SystemTime) -> Vec<Line> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let line = |(labels, expiry): (Vec<(&str, &str)>, f64)| {
        let usage = value_of(&labels, "use").unwrap_or_default();
        let days = (expiry - now) / DAY_SECONDS;
        if days < EXPIRY_DAYS_MIN {
            let text = match days < 0.0 {
                true => format!("certificate ({usage}): it has expired"),
                false => format!("certificate ({usage}): it expires in {days:.1} days"),
            };
            return Line::Wrong(text, "runbooks/WeirCertificateExpiring.md");
        }
        Line::Good(format!("certificate ({usage}): it expires in {days:.0} days"))
    };
    samples(metrics, "weir_certificate_expiry_timestamp_seconds").map(line).collect()
}

fn reload(metrics: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    match first(metrics, "weir_config_last_reload_successful") {
        Some(0.0) => lines.push(Line::Wrong(
            "configuration: the file has changed and cannot be used; the log says why, and so does weir check FILE".to_owned(),
            "runbooks/WeirConfigReloadFailed.md",
        )),
        Some(_) => lines.push(Line::Good("configuration: the last reading succeeded".to_owned())),
        None => {}
    }
    let pending = first(metrics, "weir_config_pending_fields");
    if let Some(fields) = pending.filter(|fields| *fields > 0.0) {
        lines.push(Line::Note(format!(
            "configuration: {fields} changed settings need a restart (/configz)"
        )));
    }
    lines
}

/// Returns the value of the first sample of a metric.
fn first(metrics: &str, name: &str) -> Option<f64> {
    samples(metrics, name).next().map(|(_, value)| value)
}

/// Returns the value of a label.
fn value_of<'a>(labels: &[(&'a str, &'a str)], label: &str) -> Option<&'a str> {
    labels.iter().find(|(name, _)| *name == label).map(|(_, value)| *value)
}

const DOCUMENTATION: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");
/// A probe of a container has a second or a few.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The API servers that Weir is meant for, and the last one that it was tested with
/// (docs/decisions/exact-lists-and-pages.md, and the alert WeirUpstreamNewer).
const MINOR_OLDEST: u32 = 30;
const MINOR_NEWEST: u32 = 36;
/// The Date has whole seconds, and the answer takes time. Tokens are refused from ten seconds on.
const SKEW_SECONDS_MAX: f64 = 5.0;
/// The threshold of the alert WeirCertificateExpiring.
const EXPIRY_DAYS_MIN: f64 = 7.0;
const DAY_SECONDS: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(ready: &str, metrics: &str) -> String {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        text(&report(ready, metrics, now))
    }

    #[test]
    fn a_weir_that_is_well_has_no_wrong_line() {
        let metrics = "weir_upstream_info{version=\"v1.36.2\"} 1\nweir_upstream_clock_skew_seconds 1\nweir_missing_permissions{permission=\"x\"} 0\nweir_certificate_expiry_timestamp_seconds{use=\"ca\"} 9000000\nweir_config_last_reload_successful 1\nweir_config_pending_fields 0\n";
        let text = lines("[+]ping ok\n[+]upstream ok\nreadyz check passed\n", metrics);
        assert!(text.lines().all(|line| line.starts_with("ok     ")), "{text}");
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.contains("all 2 checks of /readyz pass"), "{text}");
    }

    #[test]
    fn each_fault_has_a_line_and_a_page_that_exists() {
        let metrics = "weir_upstream_info{version=\"v1.29.1\"} 1\nweir_upstream_clock_skew_seconds -20\nweir_missing_permissions{permission=\"list namespaces\"} 1\nweir_certificate_expiry_timestamp_seconds{use=\"serving\"} 999999\nweir_certificate_expiry_timestamp_seconds{use=\"ca\"} 1086400\nweir_config_last_reload_successful 0\nweir_config_pending_fields 2\n";
        let ready = "[+]ping ok\n[-]upstream failed: no route\n[-]warm-caches failed: pods\nreadyz check failed\n";
        let text = lines(ready, metrics);
        for wrong in [
            "health: upstream: no route",
            "health: warm-caches: pods",
            "API server: v1.29.1 is older than 1.30",
            "clock: 20 s behind the API server's",
            "rights: Weir's own identity lacks list namespaces",
            "certificate (serving): it has expired",
            "certificate (ca): it expires in 1.0 days",
            "configuration: the file has changed",
        ] {
            assert!(text.contains(&format!("WRONG  {wrong}")), "{wrong}\n{text}");
        }
        assert!(text.contains("note   configuration: 2 changed settings"), "{text}");
        let pages = text.lines().filter_map(|line| line.split_once(DOCUMENTATION));
        let pages: Vec<_> = pages.map(|(_, page)| page.split('#').next().unwrap()).collect();
        assert_eq!(pages.len(), 8);
        for page in pages {
            let path = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
            assert!(std::path::Path::new(&path).exists(), "{page}");
        }
    }

    #[test]
    fn an_upstream_that_never_answered_is_wrong() {
        let text = lines("[+]ping ok\nreadyz check passed\n", "");
        assert!(text.contains("WRONG  API server: it has not answered"), "{text}");
        let newer = version("weir_upstream_info{version=\"v1.99.0\"} 1\n");
        assert!(matches!(&*newer, [Line::Note(_)]), "{newer:?}");
    }
}
