//! The differences that are allowed between a response of the upstream and one through Weir, each
//! with its reason.

use super::progress;
use super::wire::{Answer, Call};

/// Headers that are not compared.
const HEADERS: [(&str, &str); 9] = [
    ("date", "each answer has its own"),
    ("audit-id", "each request has its own"),
    (
        "x-kubernetes-pf-flowschema-uid",
        "says how the upstream queued a request that it has not got",
    ),
    ("x-kubernetes-pf-prioritylevel-uid", "the same"),
    ("x-weir-cache", "Weir's own word"),
    ("content-length", "framing: Go sends it for what fits into its buffer"),
    ("transfer-encoding", "framing"),
    ("connection", "belongs to a connection, of which there are two here"),
    ("keep-alive", "the same"),
];

/// How many times a comparison is repeated when the ages in a Table or the time of a creation
/// change (once a second, and less often later), or a random number differs.
pub(crate) const AGES_TICK: usize = 20;

/// Prepares a response for the comparison: without the headers above, and with the body
/// decompressed, because the same bytes have many deflated forms.
pub(crate) fn compared(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    if answer.header("content-encoding") == "gzip" {
        let mut plain = Vec::new();
        let read = std::io::Read::read_to_end(
            &mut flate2::read::MultiGzDecoder::new(&*answer.body),
            &mut plain,
        );
        // One gzip member and nothing after it: some clients stop there.
        answer.broken = answer.broken.or(read.is_err().then_some("its gzip is broken"));
        answer.body = plain.into();
    }
    answer.headers.retain(|(name, _)| HEADERS.iter().all(|(left_out, _)| name != left_out));
    answer
}

/// Whether a response changes by itself: the ages in a Table are relative to now, what is created
/// has the second of its creation, and the delay in the error for a future resourceVersion is
/// random. Such a response is compared until two are equal.
pub(crate) fn ticks(answer: &Answer) -> bool {
    let says = |text: &str| memchr::memmem::find(&answer.body, text.as_bytes()).is_some();
    says("columnDefinitions")
        || (answer.status == 201 && (says("managedFields") || says("creationTimestamp")))
        || (says("ResourceVersionTooLarge") && says("retryAfterSeconds"))
}

/// Normalizes responses while the upstream writes to itself (a real one renews its lease every ten
/// seconds). Each cache has its own progress, and a list "not older than" or "at any"
/// resourceVersion contains that of its cache. Two responses are equal if they differ only in the
/// resourceVersion of the list, of bookmarks, and within a token.
pub(crate) fn same_but_for_progress(call: &Call, seen: &Answer, expected: &Answer) -> bool {
    if (seen.status, &seen.headers, seen.broken)
        != (expected.status, &expected.headers, expected.broken)
        || !may_progress(call)
    {
        return false;
    }
    progress::masked(&seen.body) == progress::masked(&expected.body)
}

/// A watch whose time-out is over before it begins: the upstream ends it at whichever event it
/// notices this, so one of two responses may be a prefix of the other. Weir never answers one from
/// its cache.
pub(crate) fn over_at_once(call: &Call, seen: &Answer, expected: &Answer) -> bool {
    let [mut seen, mut expected] = [seen, expected].map(Answer::clone);
    let bodies = [&mut seen, &mut expected].map(|answer| std::mem::take(&mut answer.body));
    let shared = bodies.iter().map(|body| body.len()).min().unwrap_or(0);
    call.path.contains("timeoutSeconds=-")
        && seen == expected
        && bodies[0].get(..shared) == bodies[1].get(..shared)
}

/// Only requests that do not name one exact resourceVersion.
fn may_progress(call: &Call) -> bool {
    !call.path.contains("resourceVersionMatch=Exact")
}
