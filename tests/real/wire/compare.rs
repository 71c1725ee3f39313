//! The differences between the outcomes of one request at two servers.

use super::meaning::meaning;
use super::outcome::{End, Outcome, Usable};

/// The outcome of a request at one server, and its changes in the server's namespace.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) outcome: Outcome,
    pub(crate) effect: Vec<String>,
}

impl Seen {
    /// One line for messages.
    pub(crate) fn summary(&self) -> String {
        let Outcome { answer, usable, interim, .. } = &self.outcome;
        let body = &answer.body;
        let first = String::from_utf8_lossy(&body[..body.len().min(SHOWN_MAX)]);
        let last = &body[body.len().saturating_sub(SHOWN_MAX).max(SHOWN_MAX.min(body.len()))..];
        let text = format!("{first} … {}", String::from_utf8_lossy(last));
        let label = self.outcome.label();
        format!(
            "{label}, {interim} before, usable {usable:?}, effect {:?}, {:?} {}",
            self.effect,
            answer.headers,
            text.escape_debug()
        )
    }
}

/// One difference from the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) aspect: Aspect,
    /// The aspect and what both did, without what only this request has.
    pub(crate) kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// The objects that are left in the namespace.
    Effect,
    /// The status, or how the exchange ended without one.
    End,
    Interim,
    /// A header with this name.
    Header(String),
    Body,
    /// Whether the connection can be used.
    Usable,
}

/// Returns how `weir` differs from `direct`.
pub(crate) fn differences(direct: &Seen, weir: &Seen) -> Vec<Difference> {
    let mut differences = Vec::new();
    let (left, right) = (&direct.outcome, &weir.outcome);
    let labels = format!("{} -> {}", left.label(), right.label());
    let mut add = |aspect, kind: String| differences.push(Difference { aspect, kind });
    if direct.effect != weir.effect {
        let effects = [direct, weir].map(|seen| verbs(&seen.effect));
        add(Aspect::Effect, format!("effect {} -> {} ({labels})", effects[0], effects[1]));
    }
    if left.label() != right.label() {
        add(Aspect::End, format!("status {labels}"));
    } else if is_refusal_of_go(left) && left.answer.status == right.answer.status {
        // Go's server writes a line of text before kube-apiserver sees the request.
    } else if left.end == End::Answer {
        let ((left_head, left_body), (right_head, right_body)) =
            (meaning(&left.answer), meaning(&right.answer));
        let status = left.answer.status;
        let lines = left_head.headers.iter().chain(&right_head.headers);
        let mut names: Vec<&String> = lines.map(|(name, _)| name).collect();
        names.dedup();
        names.sort();
        names.dedup();
        for name in names {
            let values = |headers: &[(String, String)]| -> Vec<String> {
                let lines = headers.iter().filter(|(header, _)| header == name);
                lines.map(|(_, value)| value.clone()).collect()
            };
            if values(&left_head.headers) != values(&right_head.headers) {
                add(Aspect::Header(name.clone()), format!("header {name} of {status}"));
            }
        }
        if left_body != right_body {
            add(Aspect::Body, format!("body of {status}"));
        }
    }
    if left.interim != right.interim {
        add(Aspect::Interim, format!("1xx {} -> {} ({labels})", left.interim, right.interim));
    }
    let (left, right) = (left.usable, right.usable);
    if left != right && left != Usable::Unclear && right != Usable::Unclear {
        add(Aspect::Usable, format!("usable {left:?} -> {right:?} ({labels})"));
    }
    differences
}

/// Whether Go's server itself refuses a request, whatever the bytes of the response.
pub(crate) fn is_refusal_of_go(outcome: &Outcome) -> bool {
    outcome.end == End::Answer
        && outcome.answer.status >= 400
        && outcome.answer.header("audit-id").is_empty()
}

/// The verbs of an effect, each once.
fn verbs(effect: &[String]) -> String {
    let mut verbs: Vec<_> = effect.iter().filter_map(|line| line.split(' ').next()).collect();
    verbs.dedup();
    if verbs.is_empty() { "none".to_owned() } else { verbs.join("+") }
}

const SHOWN_MAX: usize = 400;
