//! The report: what was compared, what differs, what would be saved, and whether to switch.
//!
//! It names clients, resources and the paths of differences, and no content.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::server::shadow::body::BodyDifference;
use crate::server::shadow::ledger::{Counts, Difference, DifferingPart, Ledger};
use crate::server::shadow::request::ReadKind;

pub(crate) fn json(ledger: &Ledger, passed: Duration) -> Map<String, Value> {
    let kinds: Vec<_> = ledger
        .kinds()
        .map(|(ReadKind { agent, verb, resource }, counts)| {
            let mut fields = shown_counts(counts);
            fields.insert("client".to_owned(), (&**agent).into());
            fields.insert("verb".to_owned(), (*verb).into());
            fields.insert("resource".to_owned(), (&**resource).into());
            Value::from(fields)
        })
        .collect();
    let verbs = sums(ledger, |kind| kind.verb).into_iter();
    let verbs: Map<_, _> =
        verbs.map(|(verb, counts)| (verb.to_owned(), shown_counts(&counts).into())).collect();
    let missing = missing(ledger);
    let fields = [
        ("seconds", Value::from(passed.as_secs())),
        ("ready", missing.is_empty().into()),
        ("missing", missing.into()),
        ("total", shown_counts(&total(ledger)).into()),
        ("verbs", verbs.into()),
        ("kinds", kinds.into()),
        ("differences", ledger.differences().map(shown_difference).collect::<Vec<_>>().into()),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(crate) fn text(ledger: &Ledger, passed: Duration) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    write_text(&mut text, ledger, passed).unwrap_or_default();
    text
}

fn write_text(out: &mut String, ledger: &Ledger, passed: Duration) -> std::fmt::Result {
    let total = total(ledger);
    writeln!(out, "Shadow mode, {} s: {} reads", passed.as_secs(), total.seen)?;
    writeln!(
        out,
        "  equal {}, different {}, upstream inconsistent {}, events of watches equal {}",
        total.equal, total.different, total.inconsistent, total.events
    )?;
    writeln!(out, "  not comparable: {}", reasons(&total.not_comparable))?;
    writeln!(out, "  a cache would have forwarded: {}", reasons(&total.not_held))?;
    let saved = &total.saved;
    writeln!(
        out,
        "  saved upstream, without what Weir's own lists and watches cost: {} requests, {:.1} MB, {:.1} s of CPU (estimate)",
        saved.requests,
        saved.bytes as f64 / 1e6,
        saved.cpu_seconds
    )?;
    write_clients(out, ledger)?;
    write_differences(out, ledger)?;
    let missing = missing(ledger);
    if missing.is_empty() {
        return writeln!(out, "\nReady to switch: every kind of read was compared {ENOUGH} times.");
    }
    writeln!(out, "\nNot ready to switch:")?;
    missing.iter().take(LINES_MAX).try_for_each(|line| writeln!(out, "  {line}"))?;
    let more = missing.len().saturating_sub(LINES_MAX);
    if more > 0 { writeln!(out, "  and {more} more: see /api/shadow") } else { Ok(()) }
}

fn write_clients(out: &mut String, ledger: &Ledger) -> std::fmt::Result {
    let mut clients: BTreeMap<(&str, &str), (Counts, BTreeSet<&str>)> = BTreeMap::new();
    for (kind, counts) in ledger.kinds() {
        let (sum, resources) = clients.entry((&kind.agent, kind.verb)).or_default();
        sum.add(counts);
        resources.insert(&kind.resource);
    }
    writeln!(
        out,
        "\n{:<28} {:<6} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9} {:>9}",
        "CLIENT",
        "VERB",
        "RESOURCES",
        "READS",
        "EQUAL",
        "EVENTS",
        "DIFFER",
        "NO RESULT",
        "FORWARDED"
    )?;
    for ((agent, verb), (counts, resources)) in clients.iter().take(LINES_MAX) {
        let agent: String = agent.chars().take(28).collect();
        let none: u64 = counts.not_comparable.values().sum();
        let forwarded: u64 = counts.not_held.values().sum();
        writeln!(
            out,
            "{agent:<28} {verb:<6} {:>9} {:>9} {:>9} {:>9} {:>7} {none:>9} {forwarded:>9}",
            resources.len(),
            counts.seen,
            counts.equal,
            counts.events,
            counts.different + counts.inconsistent,
        )?;
    }
    Ok(())
}

fn write_differences(out: &mut String, ledger: &Ledger) -> std::fmt::Result {
    let mut differences = ledger.differences().peekable();
    if differences.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "\nLast differences, without contents:")?;
    for difference in differences.take(LINES_MAX) {
        let reason = difference.outcome.reason();
        let outcome = if reason.is_empty() { difference.outcome.as_str() } else { reason };
        writeln!(
            out,
            "  {outcome}: {} {} ({}, {})",
            difference.kind.verb, difference.request, difference.kind.agent, difference.form
        )?;
        writeln!(out, "    {}", described(&difference.what))?;
    }
    Ok(())
}

fn described(what: &DifferingPart) -> String {
    let after = |body: &Option<BodyDifference>| {
        body.as_ref().map_or_else(String::new, |body| format!("; {}", described_body(body)))
    };
    match what {
        DifferingPart::Status([upstream, cache]) => {
            format!("status: upstream {upstream}, cache {cache}")
        }
        DifferingPart::Header(name) => format!("header {name}"),
        DifferingPart::Body(body) => described_body(body),
        DifferingPart::Event(how, at, body) => {
            format!("event at {at}: {how}{}", after(body))
        }
        DifferingPart::Start([upstream, cache], body) => {
            let body = after(body);
            format!("start of the watch: upstream {upstream} objects, cache {cache}{body}")
        }
    }
}

fn described_body(body: &BodyDifference) -> String {
    let BodyDifference { offset, path, lengths: [upstream, cache], hashes: [one, other] } = body;
    format!(
        "byte {offset} at {path}; upstream {upstream} bytes, SHA-256 {one}..., cache {cache} bytes, {other}..."
    )
}

fn reasons(counts: &BTreeMap<&'static str, u64>) -> String {
    if counts.is_empty() {
        return "0".to_owned();
    }
    let total: u64 = counts.values().sum();
    let each: Vec<_> = counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    format!("{total} ({})", each.join(", "))
}

fn shown_counts(counts: &Counts) -> Map<String, Value> {
    let fields = [
        ("seen", Value::from(counts.seen)),
        ("compared", counts.compared().into()),
        ("equal", counts.equal.into()),
        ("different", counts.different.into()),
        ("upstreamInconsistent", counts.inconsistent.into()),
        ("notComparable", json!(counts.not_comparable)),
        ("notHeld", json!(counts.not_held)),
        ("equalEvents", counts.events.into()),
        ("savedRequests", counts.saved.requests.into()),
        ("savedBytes", counts.saved.bytes.into()),
        ("savedCPUSeconds", counts.saved.cpu_seconds.into()),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn shown_difference(difference: &Difference) -> Value {
    let time = Timestamp::try_from(difference.time)
        .map_or(Value::Null, |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    json!({
        "time": time,
        "client": &*difference.kind.agent,
        "verb": difference.kind.verb,
        "resource": &*difference.kind.resource,
        "request": &difference.request,
        "form": difference.form,
        "outcome": difference.outcome.as_str(),
        "reason": difference.outcome.reason(),
        "what": described(&difference.what),
    })
}

fn total(ledger: &Ledger) -> Counts {
    let mut total = Counts::default();
    ledger.kinds().for_each(|(_, counts)| total.add(counts));
    total
}

fn sums<'a, K: Ord>(ledger: &'a Ledger, key: fn(&'a ReadKind) -> K) -> BTreeMap<K, Counts> {
    let mut sums = BTreeMap::<_, Counts>::new();
    ledger.kinds().for_each(|(kind, counts)| sums.entry(key(kind)).or_default().add(counts));
    sums
}

/// Returns the comparisons and differences that are in the way of a switch; empty if none is. A
/// client's reads of one verb are of one kind here: 10,000 reads of each of dozens of resources
/// would take too long.
fn missing(ledger: &Ledger) -> Vec<String> {
    let kinds = sums(ledger, |kind| (&*kind.agent, kind.verb));
    let mut missing = Vec::new();
    if kinds.is_empty() {
        missing.push("no read was seen".to_owned());
    }
    for ((agent, verb), counts) in &kinds {
        let name = if agent.is_empty() { "(no user agent)" } else { agent };
        if counts.different > 0 {
            missing.push(format!("{name} {verb}: {} differences", counts.different));
        }
        let unconfirmed = counts.not_comparable.get("unconfirmed").copied().unwrap_or(0);
        if unconfirmed > 0 {
            missing.push(format!(
                "{name} {verb}: {unconfirmed} differences that the upstream did not confirm"
            ));
        }
        // A request that a cache would forward changes nothing for its client.
        let forwarded: u64 = counts.not_held.values().sum();
        let is_only_forwarded = forwarded >= counts.seen && counts.events == 0;
        if counts.compared() < ENOUGH && !is_only_forwarded {
            missing.push(format!("{name} {verb}: {} of {ENOUGH} comparisons", counts.compared()));
        }
    }
    missing
}

/// The comparisons of a client's kind of reads after which it may be switched over.
const ENOUGH: u64 = 10_000;
/// The report is for a terminal.
const LINES_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::server::delegate::Reason;
    use crate::server::shadow::ledger::Measured;
    use crate::server::shadow::outcome::{Cause, Outcome};

    fn kind(agent: &str, verb: &'static str) -> ReadKind {
        ReadKind { agent: agent.into(), verb, resource: "pods".into() }
    }

    #[test]
    fn a_client_is_ready_after_enough_equal_answers() {
        let mut ledger = Ledger::default();
        assert_eq!(missing(&ledger), ["no read was seen"]);
        let informer = kind("informer", "watch");
        ledger.count(&informer, Outcome::Equal, &Measured::default());
        ledger.count_events(&informer, ENOUGH - 2);
        assert_eq!(missing(&ledger), ["informer watch: 9999 of 10000 comparisons"]);
        ledger.count_events(&informer, 1);
        assert!(missing(&ledger).is_empty());
        ledger.count(&kind("kubectl", "get"), Outcome::NotHeld(Reason::Form), &Measured::default());
        assert!(missing(&ledger).is_empty(), "what is forwarded anyway is no risk");
        assert!(text(&ledger, Duration::from_secs(9)).contains("Ready to switch"));
        ledger.count(&informer, Outcome::Different, &Measured::default());
        ledger.count(&informer, Cause::Unconfirmed.into(), &Measured::default());
        let text = text(&ledger, Duration::from_secs(9));
        assert!(text.contains("Not ready to switch:\n  informer watch: 1 differences"), "{text}");
        assert!(text.contains("unconfirmed 1"), "{text}");
    }

    #[test]
    fn a_difference_is_shown_without_contents() {
        let mut ledger = Ledger::default();
        let difference = crate::server::shadow::body::difference(
            br#"{"data":{"password":"c2VjcmV0"}}"#,
            br#"{"data":{"password":"b3RoZXI="}}"#,
        );
        ledger.keep(Difference {
            time: SystemTime::UNIX_EPOCH,
            kind: kind("kubectl", "get"),
            request: "/api/v1/namespaces/a/secrets/b".to_owned(),
            form: "json",
            outcome: Outcome::Different,
            what: DifferingPart::Body(difference.unwrap()),
        });
        let (json, text) = (json(&ledger, Duration::ZERO), text(&ledger, Duration::ZERO));
        let json = Value::from(json).to_string();
        for report in [&json, &text] {
            assert!(report.contains("byte 21 at .data.*"), "{report}");
            assert!(report.contains("/api/v1/namespaces/a/secrets/b"), "{report}");
            for hidden in ["password", "c2Vj", "b3Ro"] {
                assert!(!report.contains(hidden), "{report}");
            }
        }
    }
}
