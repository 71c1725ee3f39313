//! One sentence on whether Weir is well: the worst first, and what to do about it.
//!
//! Pure: the facts are arguments.

use std::time::Duration;

use serde_json::Value;

use crate::admin::api::json::{link, object};

/// The facts that decide the verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// The checks of `/readyz` that fail, with their reasons.
    pub(super) failing: Vec<(&'static str, String)>,
    /// The time since the upstream went away; `None` while it is usable.
    pub(super) away: Option<Duration>,
    /// How long ago the upstream's history was last rewound.
    pub(super) rewound: Option<Duration>,
    /// The caches that are filled and do not follow the upstream, with the cause.
    pub(super) not_following: Vec<(String, String)>,
    /// The caches that exceed a byte budget.
    pub(super) over_budget: usize,
    /// The stage of Weir's own overload that is acted upon.
    pub(super) overload_stage: u8,
    /// The part of the requests of the last minute that Weir refused or could not forward.
    pub(super) error_share: Option<f64>,
    /// How late events were written in the last minute: the 99th percentile.
    pub(super) delay: Option<f64>,
    /// The heaviest habit of a client that is critical.
    pub(super) critical_finding: Option<String>,
    /// Habits of clients that are worth a warning.
    pub(super) warnings: usize,
    /// The running caches.
    pub(super) caches: usize,
    /// The median time of the upstream's answers.
    pub(super) upstream_seconds: Option<f64>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Well,
    Warning,
    Critical,
}

/// The sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) level: Level,
    pub(super) text: String,
    /// What to do or to look at; empty if nothing.
    pub(super) deed: &'static str,
    /// The page of the documentation about it; empty if there is none.
    pub(super) page: &'static str,
}

impl Verdict {
    /// Assesses the facts.
    pub(super) fn of(facts: &Facts) -> Self {
        let (level, text, deed, page) = assess(facts);
        Self { level, text, deed, page }
    }

    /// Returns it as JSON.
    pub(super) fn describe(&self) -> Value {
        let level = match self.level {
            Level::Well => "well",
            Level::Warning => "warning",
            Level::Critical => "critical",
        };
        object([
            ("level", level.into()),
            ("text", self.text.as_str().into()),
            ("deed", self.deed.into()),
            ("link", link(self.page)),
        ])
    }
}

#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn assess(facts: &Facts) -> (Level, String, &'static str, &'static str) {
    use Level::{Critical, Warning};
    let fails = |name: &str| facts.failing.iter().any(|(check, _)| *check == name);
    if fails("shutdown") {
        return (Warning, "Weir is stopping.".to_owned(), "", "");
    }
    if fails("startup") {
        return (Warning, "Weir is starting.".to_owned(), "", "");
    }
    if let Some(away) = facts.away {
        let text = format!(
            "The upstream is away for {} s; caches answer what they can.",
            away.as_secs().max(1)
        );
        return (
            Critical,
            text,
            "Is the API server up, and may Weir reach it? See /readyz?verbose.",
            "runbooks/WeirUpstreamUnreachable.md",
        );
    }
    if let Some((check, reason)) = facts.failing.first() {
        let text = format!("Weir is not ready: {check}: {reason}.");
        return (Critical, text, "See /readyz?verbose and the log.", "runbooks/WeirDown.md");
    }
    if let Some(ago) = facts.rewound.filter(|ago| *ago < REWOUND_FOR) {
        let text = format!(
            "The upstream's history was rewound {} min ago; all caches started again.",
            ago.as_secs() / 60
        );
        return (
            Critical,
            text,
            "Was etcd restored? Restart clients that act on what they saw.",
            "runbooks/WeirHistoryRewound.md",
        );
    }
    if let Some((cache, cause)) = facts.not_following.first() {
        let others = facts.not_following.len() - 1;
        let more = if others == 0 { String::new() } else { format!(", and {others} more") };
        let text = format!("The cache of {cache}{more} does not follow the upstream: {cause}.");
        return (
            Critical,
            text,
            "See its last failure below.",
            "runbooks/WeirCacheNotFollowing.md",
        );
    }
    if facts.over_budget > 0 {
        let text = format!(
            "{} exceed a byte budget; their resources are forwarded.",
            count(facts.over_budget, "cache")
        );
        return (
            Warning,
            text,
            "Raise cache.resourceBytesMax or cache.totalBytesMax, or exclude them.",
            "runbooks/WeirCacheOverBudget.md",
        );
    }
    if facts.overload_stage >= SHEDS_FROM {
        let text = "Weir is overloaded and refuses some requests.".to_owned();
        return (
            Warning,
            text,
            "Give it more memory or CPU; see the clients by cost.",
            "runbooks/WeirOverloaded.md",
        );
    }
    if let Some(share) = facts.error_share.filter(|share| *share > ERROR_SHARE_MAX) {
        let text = format!("Weir refused or failed {:.1} % of the last requests.", 100.0 * share);
        return (
            Warning,
            text,
            "See why below, where the origin is an error.",
            "runbooks/WeirErrorBudgetBurn.md",
        );
    }
    if let Some(delay) = facts.delay.filter(|delay| *delay > DELAY_MAX) {
        let text = format!("Events reach watches late: 1 of 100 after {delay:.1} s.");
        return (
            Warning,
            text,
            "See the CPU, and which watches are behind.",
            "runbooks/WeirErrorBudgetBurn.md",
        );
    }
    if let Some(finding) = &facts.critical_finding {
        let text = format!("A client makes the API server work: {finding}.");
        return (Warning, text, "See what clients could do better.", "reference/findings.md");
    }
    let answers = match facts.upstream_seconds {
        Some(seconds) => format!("the upstream answers in {:.0} ms", (1e3 * seconds).max(1.0)),
        None => "the upstream answers".to_owned(),
    };
    let caches = match facts.caches {
        0 => "No cache is in use yet".to_owned(),
        1 => "1 cache follows".to_owned(),
        caches => format!("{caches} caches follow"),
    };
    let text = format!("All is well. {caches}; {answers}.");
    match facts.warnings {
        0 => (Level::Well, text, "", ""),
        _ => (Level::Well, text, "Clients could do better: see below.", "reference/findings.md"),
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("{number} {noun}") } else { format!("{number} {noun}s") }
}

/// How long clients may still act on a lost history.
const REWOUND_FOR: Duration = Duration::from_secs(3600);
/// The first stage that refuses requests.
const SHEDS_FROM: u8 = 2;
const ERROR_SHARE_MAX: f64 = 0.01;
/// The objective of freshness, in seconds.
const DELAY_MAX: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_said_first() {
        let mut facts = Facts {
            failing: vec![("shutdown", String::new()), ("upstream", "refused".to_owned())],
            away: Some(Duration::from_secs(12)),
            rewound: Some(Duration::from_secs(120)),
            not_following: vec![("pods".to_owned(), "403".to_owned()); 2],
            over_budget: 1,
            overload_stage: 3,
            error_share: Some(0.05),
            delay: Some(2.0),
            critical_finding: Some("jane lists pods".to_owned()),
            warnings: 2,
            caches: 3,
            upstream_seconds: Some(0.002),
        };
        let mut expect = |change: fn(&mut Facts), level, part: &str| {
            let verdict = Verdict::of(&facts);
            assert_eq!(verdict.level, level, "{verdict:?}");
            assert!(verdict.text.contains(part), "{verdict:?}");
            change(&mut facts);
        };
        expect(|it| it.failing.retain(|it| it.0 != "shutdown"), Level::Warning, "is stopping");
        expect(|it| it.away = None, Level::Critical, "away for 12 s");
        expect(|it| it.failing.clear(), Level::Critical, "not ready: upstream: refused");
        expect(|it| it.rewound = Some(REWOUND_FOR), Level::Critical, "rewound 2 min ago");
        expect(|it| it.not_following.clear(), Level::Critical, "pods, and 1 more");
        expect(|it| it.over_budget = 0, Level::Warning, "1 cache exceed");
        expect(|it| it.overload_stage = 1, Level::Warning, "overloaded");
        expect(|it| it.error_share = Some(0.005), Level::Warning, "5.0 %");
        expect(|it| it.delay = None, Level::Warning, "after 2.0 s");
        expect(|it| it.critical_finding = None, Level::Warning, "work: jane lists pods.");
        expect(|_| {}, Level::Well, "3 caches follow; the upstream answers in 2 ms");
    }

    #[test]
    fn findings_do_not_make_it_unwell_unless_they_are_critical() {
        let verdict = Verdict::of(&Facts { warnings: 1, ..Facts::default() });
        assert_eq!((verdict.level, verdict.page), (Level::Well, "reference/findings.md"));
        let described = Verdict::of(&Facts::default()).describe();
        assert_eq!((&described["deed"], &described["link"]), (&"".into(), &"".into()));
    }
}
