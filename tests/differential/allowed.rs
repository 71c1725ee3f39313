//! What may differ between an answer of the upstream and one through Weir (design, section 1.1). All of it is here, each with its reason.

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

/// How often a comparison is made anew where the ages in a Table tick over (once a second, and less often later), or a number is drawn.
pub(crate) const AGES_TICK: usize = 20;

/// What is compared: without the headers above, and with the body unpacked, since the same bytes have many deflated forms.
pub(crate) fn compared(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    if answer.header("content-encoding") == "gzip" {
        let mut plain = Vec::new();
        let read = std::io::Read::read_to_end(
            &mut flate2::read::GzDecoder::new(&*answer.body),
            &mut plain,
        );
        // One member, and nothing after it: some clients stop there.
        answer.broken = answer.broken.or(read.is_err().then_some("its gzip is broken"));
        answer.body = plain.into();
    }
    answer.headers.retain(|(name, _)| HEADERS.iter().all(|(left_out, _)| name != left_out));
    answer
}

/// Whether an answer changes by itself: the ages in a Table are relative to now, and the time after which to ask etcd again for a
/// resourceVersion of the future is drawn by lot. It is then compared until two are the same.
pub(crate) fn ticks(answer: &Answer) -> bool {
    let says = |text: &str| memchr::memmem::find(&answer.body, text.as_bytes()).is_some();
    says("columnDefinitions") || (says("ResourceVersionTooLarge") && says("retryAfterSeconds"))
}

/// Where the upstream goes on writing to itself (a real one renews its lease every ten seconds), each cache of it has its own
/// progress, and lists "not older than" or "at any" resourceVersion carry that of the cache that made them. These two are then equal
/// if they are so but for the resourceVersion of the list and of bookmarks, and for that within a token.
pub(crate) fn same_but_for_progress(call: &Call, seen: &Answer, expected: &Answer) -> bool {
    if (seen.status, &seen.headers, seen.broken)
        != (expected.status, &expected.headers, expected.broken)
        || !may_progress(call)
    {
        return false;
    }
    progress::masked(&seen.body) == progress::masked(&expected.body)
}

/// A watch whose time is over before it begins: the upstream ends it at whichever event it finds this out, so that of two such answers one
/// only begins as the other does. Weir never answers one from its cache.
pub(crate) fn over_at_once(call: &Call, seen: &Answer, expected: &Answer) -> bool {
    let [mut seen, mut expected] = [seen, expected].map(Answer::clone);
    let bodies = [&mut seen, &mut expected].map(|answer| std::mem::take(&mut answer.body));
    let shared = bodies.iter().map(|body| body.len()).min().unwrap_or(0);
    call.path.contains("timeoutSeconds=-")
        && seen == expected
        && bodies[0].get(..shared) == bodies[1].get(..shared)
}

/// Only what does not ask for one very resourceVersion.
fn may_progress(call: &Call) -> bool {
    !call.path.contains("resourceVersionMatch=Exact")
}
