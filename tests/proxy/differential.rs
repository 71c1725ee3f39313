//! While nothing changes, an answer through Weir equals the upstream's own, and comes from the cache where it may.
//!
//! The requests are a grid over what a read can say, thinned by a fixed seed; the expectation of hit or forward is
//! written down here once more, apart from the proxy's own table.

use std::collections::BTreeMap;
use std::time::Duration;

use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Answer, Call};
use crate::harness::{Proxy, seed};

/// What may differ.
const IGNORED: [&str; 8] = [
    "date",
    "audit-id",
    "x-weir-cache",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "content-length",
    "transfer-encoding",
    "connection",
];

/// Collections with a name that is in them, and whether their answers have more forms than a custom resource's.
const COLLECTIONS: [(&str, &str); 9] = [
    ("/api/v1/configmaps", ""),
    ("/api/v1/namespaces/ns1/configmaps", "cm-b"),
    ("/api/v1/namespaces/nowhere/configmaps", ""),
    ("/api/v1/pods", ""),
    ("/api/v1/namespaces/ns1-a/pods", "pod-1"),
    ("/api/v1/nodes", "node-1"),
    ("/api/v1/namespaces", "ns1-a"),
    ("/api/v1/namespaces/ns1/endpoints", "old"),
    ("/apis/example.com/v1/namespaces/ns1/widgets", "w2"),
];

/// Selectors, and whether every collection here understands them.
const SELECTORS: [(&str, bool); 16] = [
    ("", true),
    ("labelSelector=app%3Deven", true),
    ("labelSelector=app+in+(odd,even),number!%3D2", true),
    ("labelSelector=!app", true),
    ("labelSelector=", true),
    ("labelSelector=a%3Db%3Dc", false),
    ("labelSelector=-a", false),
    ("labelSelector=number%3E1", true),
    ("fieldSelector=metadata.name%3Dcm-b", true),
    ("fieldSelector=metadata.name!%3Dcm-b", true),
    ("fieldSelector=metadata.name%3D", true),
    ("fieldSelector=metadata.name%3Dcm-a,metadata.name%3Dcm-b", true),
    ("fieldSelector=spec.nonsense%3D1", false),
    ("fieldSelector=metadata.name", false),
    ("labelSelector=app%3Deven&fieldSelector=metadata.name%3Dcm-a", true),
    ("fieldSelector=metadata.name%3Dcm%5Cq", false),
];

/// Accept headers, and whether their form is one that Weir makes itself.
const ACCEPTS: [(&str, bool); 12] = [
    ("", true),
    ("application/json", true),
    ("*/*", true),
    ("application/json, */*", true),
    ("application/json;charset=utf-8", true),
    ("application/json;pretty=1", true),
    ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", false),
    ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json", false),
    ("text/plain", false),
    ("application/json;as=Table;v=v1;g=meta.k8s.io", false),
    ("APPLICATION/JSON", false),
    ("application/vnd.kubernetes.protobuf", false),
];

const AGENTS: [&str; 4] = ["", "kubectl/v1.36.2", "curl/8.5.0", "Mozilla/5.0 (X11)"];
const LIMITS: [&str; 5] = ["", "limit=0", "limit=2", "limit=-1", "limit=abc"];
const MATCHES: [&str; 4] = ["", "Exact", "NotOlderThan", "Nonsense"];
const PRETTY: [&str; 4] = ["", "pretty=true", "pretty=false", "pretty=x"];

/// Sampled lists; enough to meet every pair of values of any two parameters several times.
const LISTS: usize = 1500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_equal_the_upstreams() {
    let proxy = quiet().await;
    let revision = proxy.upstream.store().revision();
    let versions = versions(revision);
    let tokens = tokens(&proxy).await;
    let mut random = fastrand::Rng::with_seed(20);
    let mut seen = BTreeMap::<String, usize>::new();
    for _ in 0..LISTS {
        let (collection, _) = *random.choice(COLLECTIONS.iter()).unwrap();
        let (selector, selector_ok) = *random.choice(SELECTORS.iter()).unwrap();
        let (accept, form_ok) = *random.choice(ACCEPTS.iter()).unwrap();
        let (version, fresh) = random.choice(versions.iter()).unwrap().clone();
        // Most requests leave most parameters alone; without this nearly every one would be an error.
        let mut rare = |words: &'static [&'static str]| match random.u8(..4) {
            0 => *random.choice(words.iter()).unwrap(),
            _ => "",
        };
        let (limit, matched, pretty) = (rare(&LIMITS), rare(&MATCHES), rare(&PRETTY));
        let token = if random.u8(..12) == 0 { random.choice(tokens.iter()).unwrap() } else { "" };
        let agent = *random.choice(AGENTS.iter()).unwrap();
        let mut query: Vec<String> = Vec::new();
        query.extend(version.as_ref().map(|text| format!("resourceVersion={text}")));
        query.extend((!matched.is_empty()).then(|| format!("resourceVersionMatch={matched}")));
        query.extend((!token.is_empty()).then(|| format!("continue={token}")));
        query.extend([selector, limit, pretty].map(str::to_owned));
        query.retain(|part| !part.is_empty());
        let mut call = Call::get(&format!("{collection}?{}", query.join("&")));
        for (name, value) in [("accept", accept), ("user-agent", agent)] {
            if !value.is_empty() {
                call = call.header(name, value);
            }
        }
        if random.bool() {
            call = call.header("accept-encoding", "gzip");
        }

        let through = same(&proxy, &call).await;
        let cluster_scoped = matches!(collection, "/api/v1/nodes" | "/api/v1/namespaces");
        let single = selector.contains("metadata.name%3Dcm")
            && (cluster_scoped || collection.contains("namespaces/"));
        let unset = matches!(version.as_deref(), None | Some("" | "0"));
        let plain = if !token.is_empty() {
            token == tokens[0] && unset && matched.is_empty() && limit != "limit=abc"
        } else {
            match (fresh, matched, limit) {
                (_, _, "limit=abc") => false,
                (Some("0"), "" | "NotOlderThan", _) => true,
                (Some("N" | "older"), "NotOlderThan", _) => true,
                (Some("N" | "older"), "", "" | "limit=0" | "limit=-1") => true,
                (Some("N"), "", _) => !single,
                (Some("N"), "Exact", _) => true,
                _ => false,
            }
        };
        let hit = plain && selector_ok && form_ok;
        let given = through.cache();
        // How far back a cache can go is its own affair.
        let exact = fresh == Some("older") && (matched == "Exact" || !limit.is_empty());
        if !exact {
            assert_eq!(given == "hit", hit, "{call:?} was answered with {given:?}");
        }
        *seen.entry(format!("{} {given}", through.status)).or_default() += 1;
    }
    // The grid reaches what it is meant to reach.
    for kind in ["200 OK hit", "400 Bad Request", "422", "406", "504", "consistent", "token"] {
        assert!(seen.keys().any(|key| key.contains(kind)), "{kind} never came up: {seen:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gets_equal_the_upstreams() {
    let proxy = quiet().await;
    let revision = proxy.upstream.store().revision();
    for (collection, known) in COLLECTIONS {
        for name in [known, "nope", "UPPER", "a%25b", "cm-b/status", "cm-b/nonsense"] {
            for (version, fresh) in versions(revision) {
                for (accept, form_ok) in [ACCEPTS[0], ACCEPTS[6], ACCEPTS[8], ACCEPTS[11]] {
                    // Forms matter where there is something to be shown.
                    if name.is_empty() || (name != known && !accept.is_empty()) {
                        continue;
                    }
                    let query = version.as_ref().map(|text| format!("?resourceVersion={text}"));
                    let path = format!("{collection}/{name}{}", query.unwrap_or_default());
                    let mut call = Call::get(&path);
                    if !accept.is_empty() {
                        call = call.header("accept", accept);
                    }
                    let through = same(&proxy, &call).await;
                    let hit = name == known && fresh.is_some() && form_ok;
                    let given = through.cache();
                    assert_eq!(given == "hit", hit, "{call:?} was answered with {given:?}");
                }
            }
        }
    }
}

/// A Weir whose caches of all collections are warm and at the revision of the upstream's.
pub(crate) async fn quiet() -> Proxy {
    let options = SimulatorOptions {
        freshness_timeout: Duration::from_millis(3),
        ..SimulatorOptions::default()
    };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", |config| {
        config.server.freshness_timeout = Duration::from_millis(3);
    })
    .await;
    for (collection, _) in COLLECTIONS {
        proxy.warm(collection).await;
    }
    proxy
}

/// Values of resourceVersion; with each, whether a cache that has everything may answer at `0` or at a number.
fn versions(revision: u64) -> Vec<(Option<String>, Option<&'static str>)> {
    let some = |text: String, fresh| (Some(text), fresh);
    vec![
        (None, None),
        some(String::new(), None),
        some("0".to_owned(), Some("0")),
        some("0".to_owned(), Some("0")),
        some(revision.to_string(), Some("N")),
        some((revision - 5).to_string(), Some("older")),
        some((revision + 1000).to_string(), None),
        some("abc".to_owned(), None),
        some("-1".to_owned(), None),
        some("99999999999999999999999".to_owned(), None),
    ]
}

async fn tokens(proxy: &Proxy) -> Vec<String> {
    let page = proxy.direct(&Call::get("/api/v1/configmaps?limit=2")).await.json();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    vec![token, "nonsense".to_owned(), "%25%25%25".to_owned()]
}

/// How often the ages of a Table may tick over while it is compared; they do once a second, and less often later.
const AGES_TICK: usize = 20;

/// Sends a request both ways, compares, and returns what came through Weir.
pub(crate) async fn same(proxy: &Proxy, call: &Call) -> Answer {
    let mut direct = proxy.direct(call).await;
    let mut through = proxy.call(call).await;
    // The ages in a Table go on from one answer to the next. Only where the upstream's are the same before and after Weir's
    // does a difference mean anything.
    for _ in 0..AGES_TICK {
        if through.body == direct.body || direct.json()["kind"] != "Table" {
            break;
        }
        let after = proxy.direct(call).await;
        let ticked = after.body != direct.body;
        direct = after;
        if !ticked {
            break;
        }
        through = proxy.call(call).await;
    }
    assert_eq!(through.status, direct.status, "{call:?}: {} != {}", through.text(), direct.text());
    assert_eq!(through.text(), direct.text(), "{call:?}");
    assert_eq!(heads(&through), heads(&direct), "{call:?}, {}", through.cache());
    through
}

pub(crate) fn heads(answer: &Answer) -> Vec<(String, String)> {
    let mut heads: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .filter(|(name, _)| !IGNORED.contains(&name.as_str()))
        .collect();
    heads.sort();
    heads
}
