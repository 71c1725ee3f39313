//! One sentence on whether Weir is well: the worst first, and what to do about it.
//!
//! Pure: the facts are arguments.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::admin::api::json::{link, object, time};

/// The facts that decide the verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// The checks of `/readyz` that fail, with their reasons.
    pub(super) failing: Vec<(&'static str, String)>,
    /// When the upstream went away; `None` while it is usable.
    pub(super) away: Option<SystemTime>,
    /// When the upstream's history was rewound in the last hour.
    pub(super) rewound: Option<SystemTime>,
    /// The caches that etcd proved wrong, and that answer nothing.
    pub(super) quarantined: Vec<String>,
    /// The caches that are filled and do not follow the upstream, with the cause.
    pub(super) not_following: Vec<(String, String)>,
    /// The resources of `cache.warm` without a cache that follows.
    pub(super) missing: Vec<MissingCache>,
    /// The caches that exceed a byte budget.
    pub(super) over_budget: Vec<String>,
    /// The stage of Weir's own overload that is acted upon.
    pub(super) overload_stage: u8,
    /// The part of the requests of the last minute that failed in Weir, or could not be forwarded.
    pub(super) error_share: Option<f64>,
    /// How late events were written in the last minute: the 99th percentile.
    pub(super) delay: Option<f64>,
    /// The heaviest habit of a client that is critical.
    pub(super) critical_finding: Option<String>,
    /// Habits of clients that are worth a warning.
    pub(super) warnings: usize,
    /// The caches that follow the upstream.
    pub(super) following: usize,
    /// The median time of the upstream's answers in the last minute.
    pub(super) upstream_seconds: Option<f64>,
}

/// A resource of `cache.warm` without a cache that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissingCache {
    pub(super) name: String,
    pub(super) cause: String,
    /// The page of the documentation about the cause.
    pub(super) page: &'static str,
}

/// The severity of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Well,
    Warning,
    Critical,
}

/// The sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The name of the case: the same as long as the same is wrong.
    pub(super) case: &'static str,
    pub(super) level: Level,
    pub(super) text: String,
    /// The advice: what to do or to look at; empty if there is none.
    pub(super) deed: &'static str,
    /// The page of the documentation about it; empty if there is none.
    pub(super) page: &'static str,
    /// When it began, if the facts say so; otherwise `None`.
    pub(super) since: Option<SystemTime>,
}

impl Verdict {
    /// Assesses the facts.
    pub(super) fn from_facts(facts: &Facts) -> Self {
        let cases = [check_process, check_history, check_caches, check_load, check_clients];
        cases.into_iter().find_map(|case| case(facts)).unwrap_or_else(|| well(facts))
    }

    /// Returns it as JSON. `since` stands apart from the sentence, which so stays the same.
    pub(super) fn describe(&self, since: SystemTime) -> Value {
        let level = match self.level {
            Level::Well => "well",
            Level::Warning => "warning",
            Level::Critical => "critical",
        };
        object([
            ("level", level.into()),
            ("case", self.case.into()),
            ("text", self.text.as_str().into()),
            ("since", time(since)),
            ("deed", self.deed.into()),
            ("link", link(self.page)),
        ])
    }

    fn new(level: Level, case: &'static str, text: String) -> Self {
        Self { case, level, text, deed: "", page: "", since: None }
    }

    fn do_this(self, deed: &'static str, page: &'static str) -> Self {
        Self { deed, page, ..self }
    }
}

/// Starting, stopping, and an upstream that is away.
fn check_process(facts: &Facts) -> Option<Verdict> {
    let fails = |name: &str| facts.failing.iter().any(|(check, _)| *check == name);
    if fails("shutdown") {
        let text = "Weir is stopping.".to_owned();
        return Some(Verdict::new(Level::Warning, "stopping", text));
    }
    if fails("startup") {
        let text = "Weir is starting.".to_owned();
        return Some(Verdict::new(Level::Warning, "starting", text));
    }
    if facts.away.is_some() {
        let text = "The upstream is away; caches answer what they can.".to_owned();
        let verdict = Verdict::new(Level::Critical, "upstream-away", text).do_this(
            "Is the API server up, and may Weir reach it? See /readyz?verbose.",
            "runbooks/WeirUpstreamUnreachable.md",
        );
        return Some(Verdict { since: facts.away, ..verdict });
    }
    let (check, reason) = facts.failing.first()?;
    let text = format!("Weir is not ready: {check}: {reason}.");
    let verdict = Verdict::new(Level::Critical, "not-ready", text);
    Some(verdict.do_this("See /readyz?verbose and the log.", "runbooks/WeirDown.md"))
}

/// The verdict on answers of caches that were wrong.
fn check_history(facts: &Facts) -> Option<Verdict> {
    if facts.rewound.is_some() {
        let text = "The upstream's history was rewound; all caches started again.".to_owned();
        let verdict = Verdict::new(Level::Critical, "rewound", text).do_this(
            "Was etcd restored? Restart clients that act on what they saw.",
            "runbooks/WeirHistoryRewound.md",
        );
        return Some(Verdict { since: facts.rewound, ..verdict });
    }
    let caches = named(&facts.quarantined)?;
    let text = format!(
        "Etcd has proved {caches} wrong: the resource is forwarded until a successor is checked."
    );
    let verdict = Verdict::new(Level::Critical, "quarantined", text);
    let deed = "Restart clients that act on what they saw, and report it with the log.";
    Some(verdict.do_this(deed, "runbooks/WeirCacheQuarantined.md"))
}

/// Caches that do not answer.
fn check_caches(facts: &Facts) -> Option<Verdict> {
    if let Some((cache, cause)) = facts.not_following.first() {
        let more = more(facts.not_following.len() - 1);
        let text = format!("The cache of {cache}{more} does not follow the upstream: {cause}.");
        let verdict = Verdict::new(Level::Critical, "not-following", text);
        let page = "runbooks/WeirCacheNotFollowing.md";
        return Some(verdict.do_this("See its last failure below.", page));
    }
    if let Some(MissingCache { name, cause, page }) = facts.missing.first() {
        let more = more(facts.missing.len() - 1);
        let text = format!("The warm cache of {name}{more} does not come: {cause}.");
        let verdict = Verdict::new(Level::Critical, "warm-missing", text);
        let deed = "Mend the cause, or take the resource out of cache.warm.";
        return Some(verdict.do_this(deed, page));
    }
    let (first, others) = facts.over_budget.split_first()?;
    let text = match others.len() {
        0 => format!("The cache of {first} exceeds a byte budget; its resource is forwarded."),
        others => format!(
            "The caches of {first} and {others} more exceed a byte budget; their resources are \
             forwarded."
        ),
    };
    let verdict = Verdict::new(Level::Warning, "over-budget", text);
    let deed = "Raise cache.resourceBytesMax or cache.totalBytesMax, or exclude the resource.";
    Some(verdict.do_this(deed, "runbooks/WeirCacheOverBudget.md"))
}

/// Weir has too much to do.
fn check_load(facts: &Facts) -> Option<Verdict> {
    if facts.overload_stage >= SHEDS_FROM {
        let text = "Weir is overloaded and refuses some requests.".to_owned();
        let verdict = Verdict::new(Level::Warning, "overloaded", text);
        let deed = "Give it more memory or CPU; see the clients by cost.";
        return Some(verdict.do_this(deed, "runbooks/WeirOverloaded.md"));
    }
    if let Some(share) = facts.error_share.filter(|share| *share > ERROR_SHARE_MAX) {
        let text = format!("{:.1} % of the requests of the last minute failed.", 100.0 * share);
        let verdict = Verdict::new(Level::Warning, "errors", text);
        let deed = "See why below, where the origin is an error.";
        return Some(verdict.do_this(deed, "runbooks/WeirErrorBudgetBurn.md"));
    }
    let delay = facts.delay.filter(|delay| *delay > DELAY_MAX)?;
    let text = format!("Events reach watches late: 1 of 100 after {delay:.1} s.");
    let verdict = Verdict::new(Level::Warning, "late", text);
    let deed = "See the CPU, the lag of the caches, and which watches are behind.";
    Some(verdict.do_this(deed, "runbooks/WeirErrorBudgetBurn.md"))
}

fn check_clients(facts: &Facts) -> Option<Verdict> {
    let finding = facts.critical_finding.as_ref()?;
    let text = format!("A client makes the API server work: {finding}.");
    let verdict = Verdict::new(Level::Warning, "client", text);
    Some(verdict.do_this("See what clients could do better.", "reference/findings.md"))
}

fn well(facts: &Facts) -> Verdict {
    let answers = match facts.upstream_seconds {
        Some(seconds) => format!("the upstream answers in {:.0} ms", (1e3 * seconds).max(1.0)),
        None => "the upstream was not asked in the last minute".to_owned(),
    };
    let caches = match facts.following {
        0 => "No cache is in use yet".to_owned(),
        1 => "1 cache follows".to_owned(),
        caches => format!("{caches} caches follow"),
    };
    let verdict = Verdict::new(Level::Well, "well", format!("All is well. {caches}; {answers}."));
    match facts.warnings {
        0 => verdict,
        _ => verdict.do_this("Clients could do better: see below.", "reference/findings.md"),
    }
}

/// Returns `the cache of pods and 2 more`; `None` without a name.
fn named(caches: &[String]) -> Option<String> {
    let (first, others) = caches.split_first()?;
    Some(match others.len() {
        0 => format!("the cache of {first}"),
        others => format!("the caches of {first} and {others} more"),
    })
}

fn more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(", and {others} more") }
}

/// How long clients may still act on a lost history.
pub(super) const REWOUND_FOR: Duration = Duration::from_secs(3600);
/// The first stage that refuses requests.
const SHEDS_FROM: u8 = 2;
const ERROR_SHARE_MAX: f64 = 0.01;
/// The objective of freshness, in seconds.
const DELAY_MAX: f64 = 1.0;

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_worst_is_said_first() {
        let missing = MissingCache {
            name: "nodes".to_owned(),
            cause: "no right".to_owned(),
            page: "runbooks/WeirMissingRights.md",
        };
        let mut facts = Facts {
            failing: vec![("shutdown", String::new()), ("upstream", "refused".to_owned())],
            away: Some(UNIX_EPOCH),
            rewound: Some(UNIX_EPOCH),
            quarantined: vec!["secrets".to_owned()],
            not_following: vec![("pods".to_owned(), "403".to_owned()); 2],
            missing: vec![missing],
            over_budget: vec!["events".to_owned()],
            overload_stage: 3,
            error_share: Some(0.05),
            delay: Some(2.0),
            critical_finding: Some("jane lists pods".to_owned()),
            warnings: 2,
            following: 3,
            upstream_seconds: Some(0.002),
        };
        let mut expect = |change: fn(&mut Facts), level, part: &str| {
            let verdict = Verdict::from_facts(&facts);
            assert_eq!(verdict.level, level, "{verdict:?}");
            assert!(verdict.text.contains(part), "{verdict:?}");
            let has_runbook = verdict.page.is_empty() || verdict.page.contains(".md");
            assert!(has_runbook, "{verdict:?}");
            change(&mut facts);
        };
        expect(
            |facts| facts.failing.retain(|check| check.0 != "shutdown"),
            Level::Warning,
            "is stopping",
        );
        expect(|facts| facts.away = None, Level::Critical, "upstream is away;");
        expect(|facts| facts.failing.clear(), Level::Critical, "not ready: upstream: refused");
        expect(|facts| facts.rewound = None, Level::Critical, "was rewound;");
        expect(
            |facts| facts.quarantined.clear(),
            Level::Critical,
            "proved the cache of secrets wrong",
        );
        expect(|facts| facts.not_following.clear(), Level::Critical, "pods, and 1 more");
        expect(|facts| facts.missing.clear(), Level::Critical, "nodes does not come: no right.");
        let one = "The cache of events exceeds a byte budget; its resource is forwarded.";
        expect(|facts| facts.over_budget.push("pods".to_owned()), Level::Warning, one);
        let two = "The caches of events and 1 more exceed a byte budget; their";
        expect(|facts| facts.over_budget.clear(), Level::Warning, two);
        expect(|facts| facts.overload_stage = 1, Level::Warning, "overloaded");
        expect(|facts| facts.error_share = Some(0.005), Level::Warning, "5.0 %");
        expect(|facts| facts.delay = None, Level::Warning, "after 2.0 s");
        expect(|facts| facts.critical_finding = None, Level::Warning, "work: jane lists pods.");
        let well = "3 caches follow; the upstream answers in 2 ms";
        expect(|facts| facts.upstream_seconds = None, Level::Well, well);
        expect(|_| {}, Level::Well, "the upstream was not asked in the last minute");
    }

    #[test]
    fn the_time_stands_apart_so_that_the_sentence_stays_the_same() {
        let away = |seconds| {
            let away = UNIX_EPOCH + Duration::from_secs(seconds);
            let verdict = Verdict::from_facts(&Facts { away: Some(away), ..Facts::default() });
            assert_eq!(verdict.since, Some(away));
            verdict.describe(away)
        };
        assert_eq!(away(10)["text"], away(20)["text"]);
        assert_eq!(away(10)["since"], "1970-01-01T00:00:10.000Z");
        let well =
            Verdict::from_facts(&Facts::default()).describe(UNIX_EPOCH + Duration::from_secs(3));
        assert_eq!(
            (&well["since"], &well["case"]),
            (&"1970-01-01T00:00:03.000Z".into(), &"well".into())
        );
    }

    #[test]
    fn findings_do_not_make_it_unwell_unless_they_are_critical() {
        let verdict = Verdict::from_facts(&Facts { warnings: 1, ..Facts::default() });
        assert_eq!((verdict.level, verdict.page), (Level::Well, "reference/findings.md"));
        let described = Verdict::from_facts(&Facts::default()).describe(UNIX_EPOCH);
        assert_eq!((&described["deed"], &described["link"]), (&"".into(), &"".into()));
    }
}
