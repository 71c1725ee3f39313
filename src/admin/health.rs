//! Health checks with the paths, parameters and texts of kube-apiserver's `/livez` and `/readyz`
//! (apiserver `pkg/server/healthz`), which probes and people know.
//!
//! A check is a closure that reads existing state: it must neither wait nor send a request.

use std::fmt;

use crate::admin::slis::ObservedChecks;

/// The result of a check; the error is the reason.
pub type Health = Result<(), String>;

/// One of the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/livez`: fails if the process should be restarted.
    Live,
    /// `/readyz`: fails if clients should not be sent here.
    Ready,
}

/// The checks of both endpoints, in the order in which they are printed.
pub struct Checks {
    live: Vec<Check>,
    ready: Vec<Check>,
    pub(super) observed: ObservedChecks,
}

/// A named check.
struct Check {
    name: &'static str,
    health: Box<dyn Fn() -> Health + Send + Sync>,
}

/// The response of an endpoint.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether every check that was not excluded passed.
    pub passed: bool,
    /// The body.
    pub text: String,
}

impl Checks {
    /// Returns the checks of every process: both endpoints begin with `ping`.
    pub fn new() -> Self {
        let ping = || Check { name: "ping", health: Box::new(|| Ok(())) };
        Self { live: vec![ping()], ready: vec![ping()], observed: ObservedChecks::new() }
    }

    /// Runs the checks of `/readyz`, and returns whether each passes.
    pub(super) fn ready_now(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.ready.iter().map(|check| (check.name, (check.health)().is_ok()))
    }

    /// Runs a check that a client asked for.
    fn run(&self, title: &str, check: &Check) -> Health {
        let health = (check.health)();
        self.observed.observe(title, check.name, health.is_ok());
        health
    }

    /// Adds a check to `/readyz`.
    pub fn ready(
        mut self,
        name: &'static str,
        health: impl Fn() -> Health + Send + Sync + 'static,
    ) -> Self {
        self.ready.push(Check { name, health: Box::new(health) });
        self
    }

    /// Returns the checks of an endpoint that fail, with their reasons.
    pub fn failing(&self, endpoint: Endpoint) -> Vec<(&'static str, String)> {
        let checks = match endpoint {
            Endpoint::Live => &self.live,
            Endpoint::Ready => &self.ready,
        };
        let failing = checks.iter().filter_map(|check| Some((check.name, (check.health)().err()?)));
        failing.collect()
    }

    /// Runs the checks of an endpoint, or one of them. Returns `None` if there is no such check.
    pub fn report(&self, endpoint: Endpoint, name: Option<&str>, query: &str) -> Option<Report> {
        let (title, checks) = match endpoint {
            Endpoint::Live => ("livez", &self.live),
            Endpoint::Ready => ("readyz", &self.ready),
        };
        if let Some(name) = name {
            let check = checks.iter().find(|check| check.name == name)?;
            return Some(match self.run(title, check) {
                Ok(()) => Report { passed: true, text: "ok".to_owned() },
                Err(reason) => {
                    Report { passed: false, text: format!("internal server error: {reason}\n") }
                }
            });
        }
        let query = Query::parse(query);
        let mut passed = true;
        let mut text = String::new();
        for check in checks {
            if query.excluded.contains(&check.name) {
                text.push_str(&format!("[+]{} excluded: ok\n", check.name));
                continue;
            }
            match self.run(title, check) {
                Ok(()) => text.push_str(&format!("[+]{} ok\n", check.name)),
                Err(reason) => {
                    passed = false;
                    text.push_str(&format!("[-]{} failed: {reason}\n", check.name));
                }
            }
        }
        let strangers: Vec<String> = query
            .excluded
            .iter()
            .filter(|name| checks.iter().all(|check| check.name != **name))
            .map(|name| format!("{name:?}"))
            .collect();
        if !strangers.is_empty() {
            text.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {}\n",
                strangers.join(",")
            ));
        }
        Some(match (passed, query.verbose) {
            (true, false) => Report { passed, text: "ok".to_owned() },
            (true, true) => Report { passed, text: format!("{text}{title} check passed\n") },
            (false, _) => Report { passed, text: format!("{text}{title} check failed\n") },
        })
    }
}

impl Default for Checks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |checks: &[Check]| checks.iter().map(|check| check.name).collect::<Vec<_>>();
        f.debug_struct("Checks")
            .field("live", &names(&self.live))
            .field("ready", &names(&self.ready))
            .finish()
    }
}

struct Query<'a> {
    /// `?verbose`, whatever its value.
    verbose: bool,
    /// `?exclude=NAME`, which may be repeated.
    excluded: Vec<&'a str>,
}

impl<'a> Query<'a> {
    /// Parses a query. Names of checks need no percent-encoding, so none is decoded.
    fn parse(query: &'a str) -> Self {
        let mut parsed = Self { verbose: false, excluded: Vec::new() };
        for pair in query.split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("verbose", _) => parsed.verbose = true,
                ("exclude", name) if !name.is_empty() && parsed.excluded.len() < EXCLUDED_MAX => {
                    parsed.excluded.push(name);
                }
                _ => {}
            }
        }
        parsed
    }
}

/// More than the number of checks.
const EXCLUDED_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(healthy: bool) -> Checks {
        Checks::new()
            .ready("upstream", move || if healthy { Ok(()) } else { Err("is away".to_owned()) })
            .ready("shutdown", || Ok(()))
    }

    #[test]
    fn passing_checks_answer_ok() {
        let report = |query| checks(true).report(Endpoint::Ready, None, query).unwrap();
        assert_eq!(report(""), Report { passed: true, text: "ok".to_owned() });
        assert_eq!(
            report("verbose").text,
            "[+]ping ok\n[+]upstream ok\n[+]shutdown ok\nreadyz check passed\n"
        );
        assert_eq!(report("verbose=1").text, report("verbose").text);
    }

    #[test]
    fn a_failed_check_is_named_without_verbose() {
        let report = checks(false).report(Endpoint::Ready, None, "").unwrap();
        assert!(!report.passed);
        assert_eq!(
            report.text,
            "[+]ping ok\n[-]upstream failed: is away\n[+]shutdown ok\nreadyz check failed\n"
        );
        assert!(checks(false).report(Endpoint::Live, None, "").unwrap().passed);
    }

    #[test]
    fn checks_can_be_excluded_or_asked_alone() {
        let checks = checks(false);
        let report = checks.report(Endpoint::Ready, None, "exclude=upstream&exclude=moon&verbose");
        let report = report.unwrap();
        assert!(report.passed);
        assert!(report.text.contains("[+]upstream excluded: ok\n"), "{}", report.text);
        assert!(report.text.contains("no matches for \"moon\"\n"), "{}", report.text);
        let alone =
            |name| checks.report(Endpoint::Ready, Some(name), "").map(|report| report.passed);
        assert_eq!(
            (alone("upstream"), alone("ping"), alone("moon")),
            (Some(false), Some(true), None)
        );
    }
}
