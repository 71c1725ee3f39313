//! The meaning of each reason, and a way to avoid it, for the live page and for
//! `docs/reference/headers.md`.
//!
//! The same word may stand for two things: a request that is forwarded because Weir's own identity
//! may not list (`forward`, `forbidden`), and a user who may not (`error`, `forbidden`). So an
//! explanation is found by the cache status and the reason.

/// The meaning of a reason, and a way to avoid it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    pub(super) reason: &'static str,
    pub(super) meaning: &'static str,
    /// Empty if there is none.
    pub(super) change: &'static str,
    /// The page of the documentation about it; empty for the table of all reasons.
    pub(super) page: &'static str,
}

/// Returns the explanation of a reason with this cache status; an empty one if it is not known.
pub(super) fn explain(cache_status: &str, reason: &str) -> &'static Explanation {
    let find = |table: &'static [Explanation]| {
        table.iter().find(|explanation| explanation.reason == reason)
    };
    let explanation = match cache_status {
        "forward" => find(&FORWARDED),
        // A request that was forwarded has the reason of that also if it failed.
        "error" => find(&REFUSED).or_else(|| find(&FORWARDED).map(|_| &FAILED)),
        _ => None,
    };
    explanation.unwrap_or(&UNKNOWN)
}

const fn row(reason: &'static str, meaning: &'static str, change: &'static str) -> Explanation {
    Explanation { reason, meaning, change, page: "" }
}

const fn linked(
    reason: &'static str,
    meaning: &'static str,
    change: &'static str,
    page: &'static str,
) -> Explanation {
    Explanation { reason, meaning, change, page }
}

const NOTHING: &str = "Nothing; usual.";
const REVIEWS: &str = "runbooks/WeirReviewsFailing.md";

const UNKNOWN: Explanation = row("", "", "");

/// For a request that had to be forwarded and got no answer from the API server.
pub(super) const FAILED: Explanation = linked(
    "any of those above",
    "The request had to be forwarded for this reason, and the API server did not answer it, or too many requests for the resource are forwarded already (429).",
    "Look at the log, and whether the API server answers.",
    "runbooks/WeirUpstreamUnreachable.md",
);

/// Why requests are forwarded.
pub(super) const FORWARDED: [Explanation; 34] = [
    row("aggregated", "An aggregated API server (an APIService) serves the resource.", NOTHING),
    linked(
        "authorization",
        "Weir could not find out what the client may do.",
        "Look at the access reviews.",
        REVIEWS,
    ),
    row(
        "before-cache",
        "The resourceVersion of a watch is older than the history of the cache, and the API server may still have it.",
        "Usual after a start. If it lasts, clients resume very late: raise cache.totalBytesMax.",
    ),
    row("bypass", "The client sent X-Weir-Cache: bypass.", "Remove the header."),
    row(
        "consistent",
        "A GET or list without a resourceVersion asks for the latest state, and no proof was worth it or allowed.",
        "Clients: resourceVersion \"0\", or an informer. Lists here: cache.consistentLists: auto.",
    ),
    row(
        "continue",
        "The state of the next page is no longer in the history.",
        "Raise cache.totalBytesMax, or read pages faster.",
    ),
    row(
        "exact",
        "The state at this exact resourceVersion is no longer in the history.",
        "Raise cache.totalBytesMax, or list at the latest state.",
    ),
    row("excluded", "The configuration excludes the resource.", "cache.include, cache.exclude."),
    linked(
        "forbidden",
        "Weir's own identity may not list the resource.",
        "Grant it get, list and watch, or exclude the resource.",
        "runbooks/WeirMissingRights.md",
    ),
    row(
        "form",
        "Only the API server writes this form: Table (kubectl get), YAML, CBOR.",
        "kubectl: -o json, or -o name. Usual for people.",
    ),
    linked(
        "identity",
        "Weir could not find out who the client is.",
        "Look at the token reviews.",
        REVIEWS,
    ),
    row(
        "impersonation",
        "The client acts as another user, which Weir does not know to be allowed.",
        NOTHING,
    ),
    row(
        "latest",
        "A list of a single object with a limit, which the API server reads from etcd.",
        "Nothing.",
    ),
    row("non-resource", "The path is not a resource's.", NOTHING),
    row(
        "not-found",
        "The object does not exist, and only the API server writes this error.",
        NOTHING,
    ),
    linked(
        "not-fresh",
        "The cache was not proved to be as fresh as requested in time.",
        "Look at the lag of the cache.",
        "runbooks/WeirCacheNotFollowing.md",
    ),
    row(
        "not-ready",
        "The cache was not filled in time.",
        "cache.warm fills it before clients ask.",
    ),
    row("not-watchable", "The resource cannot be listed and watched.", "Nothing."),
    row(
        "options",
        "The API server refuses the options, or has its own answer to them.",
        "A valid request.",
    ),
    linked(
        "over-budget",
        "The cache would exceed a byte budget.",
        "Raise cache.resourceBytesMax or cache.totalBytesMax, or exclude the resource.",
        "runbooks/WeirCacheOverBudget.md",
    ),
    row(
        "path",
        "The path is ambiguous, or does not fit the scope of the resource.",
        "A valid path.",
    ),
    linked(
        "quarantined",
        "Etcd has proved the cache wrong, and its successor is not checked yet.",
        "Report it as a bug, with the log; cache.verify.",
        "runbooks/WeirCacheQuarantined.md",
    ),
    row(
        "request",
        "A HEAD, or a request with a body, a byte range, a condition, an Origin that is not the page's own (only the API server writes CORS headers), or a parameter that Weir does not know.",
        "A plain GET.",
    ),
    row(
        "selector",
        "The API server has its own answer to this selector, or it is very long, or it is a shard selector that the API server may ignore.",
        "A shorter selector.",
    ),
    row("shadow", "Weir runs in shadow mode.", "End it: shadow.mode."),
    row("stopping", "Weir stops.", "Nothing."),
    row("subresource", "The path is a subresource's, such as log, exec, status or scale.", NOTHING),
    row(
        "token",
        "The continue token is not one that Weir or the API server's cache writes.",
        "Nothing.",
    ),
    row(
        "unknown",
        "The API server does not serve the resource, as far as discovery says.",
        "Nothing; usual for a moment after a new CRD.",
    ),
    linked(
        "unproved",
        "A list without a resourceVersion, for which no proof of freshness came in time.",
        "Look at the caches and the latency of the upstream.",
        "runbooks/WeirCacheNotFollowing.md",
    ),
    row(
        "unreadable",
        "The objects of the resource cannot be parsed, or their resourceVersions are no numbers.",
        "Look at the log, and report it.",
    ),
    linked(
        "unreadable-object",
        "The answer may have an object that the cache cannot read, such as a role whose name is not UTF-8.",
        "Delete the object, if nobody needs it. All else is answered.",
        "decisions/unreadable-objects.md",
    ),
    row(
        "upgrade",
        "The request asks for another protocol (SPDY, WebSocket), such as exec or port-forward, and is no plain watch.",
        NOTHING,
    ),
    row("write", "The request is not a read.", NOTHING),
];

/// Why Weir itself refuses requests.
pub(super) const REFUSED: [Explanation; 14] = [
    row(
        "connect",
        "The method is CONNECT: the client takes Weir for a proxy of the web.",
        "The client's proxy settings.",
    ),
    row(
        "connections",
        "The user has too many connections open (429).",
        "One client for the whole program; server.connectionsPerAddressMax.",
    ),
    row(
        "forbidden",
        "The user of the request may not do this: RBAC, or another authorizer, denies it (403).",
        "Nothing, if the denial is meant. Otherwise grant it to the user, not to Weir: kubectl auth can-i --as USER.",
    ),
    row(
        "framing",
        "Another proxy or the API server could parse the target or the length of the request differently (400).",
        "The client, or the proxy before Weir.",
    ),
    row(
        "host",
        "The Host of the request is none that Weir answers to (403), as with DNS rebinding.",
        "server.allowedHosts.",
    ),
    linked(
        "identity",
        "Weir cannot pass on who the client is, or does not know yet how the API server authenticates.",
        "Look at the token reviews, and at authentication.frontProxy and authentication.impersonate.",
        REVIEWS,
    ),
    row(
        "loop",
        "The request came back to a Weir that had forwarded it (508).",
        "The address of the upstream must not lead to Weir.",
    ),
    row(
        "quota",
        "The client has too many requests to the API server open (429).",
        "Look at the clients by cost, and how that client lists.",
    ),
    row(
        "response-memory",
        "Too many bytes of responses wait for clients to read them (429).",
        "Look for slow clients.",
    ),
    linked(
        "reviews",
        "Too many access reviews are pending, so lists and watches wait their turn (429).",
        "Usual for a moment when many clients return. If it lasts, look at the latency of the API server.",
        REVIEWS,
    ),
    linked(
        "shed",
        "Flow control, a rule or Weir's own overload refuses it (429, or 403 by a rule). The header X-Weir-Shed has the cause: queue-full, time-out, concurrency-limit, rate, bytes, watches, denied, unpaged or overload.",
        "Look at the clients by cost; flowControl.rules, and the memory and CPU of Weir.",
        "reference/headers.md#x-weir-shed",
    ),
    row(
        "throttled",
        "Too many unknown tokens of one address are under review (429).",
        "Usual for a moment after a start. If it lasts, a client sends wrong tokens.",
    ),
    row(
        "unauthenticated",
        "The request has no valid credential (401).",
        "The client's token or certificate: is it expired, or of another cluster?",
    ),
    linked(
        "upstream-away",
        "No API server is usable, and no cache may answer (503).",
        "Is the API server up, and may Weir reach it?",
        "runbooks/WeirUpstreamUnreachable.md",
    ),
];
