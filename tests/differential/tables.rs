//! The fixed core of the corpus: the tables of docs/semantics.md §1.5 and §1.6 row by row with
//! every value of every parameter, on a built-in and a custom collection; and every form, selector
//! and path form at least once on each kind of collection.

use super::collections::{COLLECTIONS, Collection, at};
use super::forms::{ACCEPTS, AGENTS, PACKINGS, PRETTIES, accept};
use super::read_request::{ReadRequest, Token, Verb, Version, WatchForm};
use super::selectors::{FIELDS, LABELS};

/// All rows.
pub(crate) fn core() -> Vec<ReadRequest> {
    let mut reads = Vec::new();
    for collection in PLAIN.map(at) {
        lists(collection, &mut reads);
        pages(collection, &mut reads);
        watches(collection, &mut reads);
    }
    gets(&mut reads);
    forms(&mut reads);
    selectors(&mut reads);
    shapes(&mut reads);
    reads
}

/// §1.5 and §1.6.1; the last collection is the uncached one of §3.9.
const PLAIN: [&str; 3] = [
    "/api/v1/namespaces/a/configmaps",
    "/apis/example.com/v1/widgets",
    "/apis/events.k8s.io/v1/events",
];

pub(crate) const VERSIONS: [Version; 15] = [
    Version::Unset,
    Version::Empty,
    Version::Zero,
    Version::ZeroZero,
    Version::Old,
    Version::Recent,
    Version::Current,
    Version::Future,
    Version::Bad("abc"),
    Version::Bad("-1"),
    Version::Bad("+5"),
    Version::Bad("1.5"),
    Version::Bad("0x10"),
    Version::Bad("18446744073709551616"),
    Version::Bad("%20"),
];

pub(crate) const MATCHES: [&str; 5] = ["", "Exact", "NotOlderThan", "exact", "Nonsense"];
pub(crate) const LIMITS: [&str; 7] = ["", "0", "1", "2", "500", "-1", "abc"];

fn lists(collection: &'static Collection, reads: &mut Vec<ReadRequest>) {
    for version in VERSIONS {
        for matched in MATCHES {
            for limit in LIMITS {
                let read = ReadRequest::new(Verb::List, collection, version);
                reads.push(ReadRequest { matched, limit, ..read });
            }
        }
        for initial in ["true", "false", "0"] {
            reads
                .push(ReadRequest { initial, ..ReadRequest::new(Verb::List, collection, version) });
        }
    }
}

pub(crate) const TOKENS: [Token; 17] = [
    Token::Minted(Version::Recent),
    Token::Minted(Version::Current),
    Token::Minted(Version::Old),
    Token::FromEtcd(Version::Recent),
    Token::Latest,
    Token::Foreign,
    Token::Bad("nonsense"),
    Token::Bad("!!!"),
    Token::Bad("%25%25%25"),
    // {}
    Token::Bad("e30"),
    // []
    Token::Bad("W10"),
    // {"v":"meta.k8s.io/v1","rv":0,"start":"/x"}
    Token::Bad("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiIveCJ9"),
    // {"v":"meta.k8s.io/v1","rv":5,"start":""}
    Token::Bad("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIifQ"),
    // {"v":"meta.k8s.io/v1","rv":5,"start":"../x"}
    Token::Bad("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIuLi94In0"),
    // {"v":"meta.k8s.io/v2","rv":5,"start":"/x"}
    Token::Bad("eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6NSwic3RhcnQiOiIveCJ9"),
    // {"v":"meta.k8s.io/v1","rv":"5","start":"/x"}
    Token::Bad("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6IjUiLCJzdGFydCI6Ii94In0"),
    // The first of these with padding.
    Token::Bad("e30="),
];

/// L9 to L12, §3.4.
fn pages(collection: &'static Collection, reads: &mut Vec<ReadRequest>) {
    for token in TOKENS {
        for version in [Version::Unset, Version::Zero, Version::Current, Version::Bad("abc")] {
            for limit in ["", "1", "500"] {
                let read = ReadRequest::new(Verb::List, collection, version);
                reads.push(ReadRequest { token, limit, ..read });
            }
        }
        for matched in ["Exact", "NotOlderThan"] {
            for version in [Version::Unset, Version::Current] {
                reads.push(ReadRequest {
                    token,
                    matched,
                    ..ReadRequest::new(Verb::List, collection, version)
                });
            }
        }
        let fields = &FIELDS[0];
        reads.push(ReadRequest {
            token,
            fields,
            limit: "1",
            ..ReadRequest::new(Verb::List, collection, Version::Unset)
        });
        let labels = &LABELS[2];
        reads.push(ReadRequest {
            token,
            labels,
            limit: "1",
            ..ReadRequest::new(Verb::List, collection, Version::Unset)
        });
    }
}

pub(crate) const WATCH_FORMS: [WatchForm; 8] = [
    WatchForm::Parameter("1"),
    WatchForm::Parameter("true"),
    WatchForm::Parameter("TRUE"),
    WatchForm::Parameter("yes"),
    WatchForm::Parameter("0"),
    WatchForm::Path,
    WatchForm::PathAndParameter,
    WatchForm::WebSocket,
];

/// §1.4 and §1.6.4.
fn watches(collection: &'static Collection, reads: &mut Vec<ReadRequest>) {
    let parameter = WatchForm::Parameter("1");
    for version in VERSIONS {
        for initial in ["", "true", "false"] {
            for matched in ["", "NotOlderThan", "Exact", "Nonsense"] {
                for bookmarks in ["", "true"] {
                    let read = ReadRequest::new(Verb::Watch(parameter), collection, version);
                    reads.push(ReadRequest { initial, matched, bookmarks, ..read });
                }
            }
        }
        for form in WATCH_FORMS {
            let read = ReadRequest {
                bookmarks: "1",
                ..ReadRequest::new(Verb::Watch(form), collection, version)
            };
            reads.push(read);
            reads.push(ReadRequest { limit: "1", ..read });
            reads.push(ReadRequest { initial: "1", matched: "NotOlderThan", ..read });
        }
    }
    for timeout in ["2", "-1", "abc", "1.5"] {
        let read = ReadRequest::new(Verb::Watch(parameter), collection, Version::Zero);
        reads.push(ReadRequest { timeout, bookmarks: "1", ..read });
    }
    for token in [TOKENS[0], TOKENS[6]] {
        for matched in ["", "NotOlderThan"] {
            let read = ReadRequest::new(Verb::Watch(parameter), collection, Version::Zero);
            reads.push(ReadRequest { token, matched, ..read });
        }
    }
}

/// §1.6.3, §4.
fn gets(reads: &mut Vec<ReadRequest>) {
    for collection in &COLLECTIONS {
        for name in collection.names {
            for version in VERSIONS {
                reads.push(ReadRequest::new(Verb::Get(name), collection, version));
            }
            let read = ReadRequest::new(Verb::Get(name), collection, Version::Zero);
            reads.push(ReadRequest { idle: "watch=true", ..read });
            reads.push(ReadRequest { matched: "Exact", limit: "abc", ..read });
            reads.push(ReadRequest { head: true, ..read });
            reads.push(ReadRequest { slash: true, ..read });
        }
    }
}

/// §8, §9: each Accept header with each verb on each kind of collection, empty ones included.
fn forms(reads: &mut Vec<ReadRequest>) {
    let watch = Verb::Watch(WatchForm::Parameter("1"));
    for path in FORMED {
        let collection = at(path);
        for accept in &ACCEPTS {
            reads.push(ReadRequest {
                accept,
                ..ReadRequest::new(Verb::List, collection, Version::Zero)
            });
            reads.push(ReadRequest {
                accept,
                ..ReadRequest::new(Verb::List, collection, Version::Bad("x"))
            });
            let read = ReadRequest::new(watch, collection, Version::Zero);
            reads.push(ReadRequest { accept, bookmarks: "true", ..read });
            if let Some(name) = collection.names.first() {
                reads.push(ReadRequest {
                    accept,
                    ..ReadRequest::new(Verb::Get(name), collection, Version::Zero)
                });
                let read = ReadRequest::new(Verb::Get("nope"), collection, Version::Zero);
                reads.push(ReadRequest { accept, ..read });
            }
        }
        for agent in AGENTS {
            for pretty in PRETTIES {
                let read = ReadRequest::new(Verb::List, collection, Version::Zero);
                reads.push(ReadRequest { agent, pretty, ..read });
            }
        }
    }
    for path in PACKED {
        let protobuf = accept("application/vnd.kubernetes.protobuf,application/json");
        for packing in PACKINGS {
            for accept in [&ACCEPTS[0], protobuf] {
                let read = ReadRequest::new(Verb::List, at(path), Version::Zero);
                reads.push(ReadRequest { packing, accept, ..read });
                reads.push(ReadRequest { packing, accept, agent: "curl/8", ..read });
                let read = ReadRequest::new(Verb::Get("long"), at(path), Version::Zero);
                reads.push(ReadRequest { packing, accept, ..read });
            }
            let read =
                ReadRequest::new(Verb::Watch(WatchForm::Parameter("1")), at(path), Version::Zero);
            reads.push(ReadRequest { packing, ..read });
        }
    }
}

/// §8.7: sizes just over the threshold of compression, just below it, and far below.
const PACKED: [&str; 3] = [
    "/api/v1/namespaces/long/configmaps",
    "/api/v1/namespaces/short/configmaps",
    "/api/v1/namespaces/a/configmaps",
];

const FORMED: [&str; 7] = [
    "/api/v1/namespaces/a/configmaps",
    "/api/v1/namespaces/a-b/configmaps",
    "/api/v1/namespaces/a/endpoints",
    "/apis/example.com/v1/namespaces/a/widgets",
    "/apis/example.com/v1beta1/namespaces/a/widgets",
    "/api/v1/limitranges",
    "/apis/example.com/v1/trinkets",
];

/// §7, on lists and, where they are accepted, on watches.
fn selectors(reads: &mut Vec<ReadRequest>) {
    for collection in &COLLECTIONS {
        let fields = FIELDS.iter().filter(|_| PLAIN.contains(&collection.path));
        for fields in fields.chain(collection.fields) {
            let read = ReadRequest::new(Verb::List, collection, Version::Zero);
            reads.push(ReadRequest { fields, ..read });
            for (version, matched, limit) in [
                (Version::Unset, "", ""),
                (Version::Current, "", "1"),
                (Version::Current, "NotOlderThan", "1"),
                (Version::Recent, "Exact", ""),
            ] {
                reads.push(ReadRequest { version, matched, limit, fields, ..read });
            }
            let verb = Verb::Watch(WatchForm::Parameter("1"));
            let read = ReadRequest::new(verb, collection, Version::Zero);
            reads.push(ReadRequest { fields, bookmarks: "1", ..read });
        }
    }
    for collection in PLAIN.map(at) {
        for labels in &LABELS {
            for limit in ["", "1"] {
                let read = ReadRequest::new(Verb::List, collection, Version::Current);
                reads.push(ReadRequest { labels, limit, matched: "NotOlderThan", ..read });
            }
            let verb = Verb::Watch(WatchForm::Parameter("1"));
            reads.push(ReadRequest { labels, ..ReadRequest::new(verb, collection, Version::Zero) });
        }
    }
}

/// Equivalent spellings of one request.
fn shapes(reads: &mut Vec<ReadRequest>) {
    for collection in &COLLECTIONS {
        let read = ReadRequest::new(Verb::List, collection, Version::Zero);
        reads.push(ReadRequest { slash: true, ..read });
        reads.push(ReadRequest { head: true, ..read });
        for idle in IDLE {
            reads.push(ReadRequest { idle, ..read });
        }
    }
}

/// Parameters without effect (§1.2): unknown, repeated, malformed.
pub(crate) const IDLE: [&str; 9] = [
    "timeout=10s",
    "timeout=1m30s",
    "_=1",
    "unknown=%zz",
    "limit=1;x=y",
    "continue=%%%",
    "fieldManager=5",
    "resourceVersion=7",
    "watch=0",
];
