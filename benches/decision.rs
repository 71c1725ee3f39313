//! What it costs to know who somebody is and that they may, once both are remembered, and the 403 of one who may not.
//!
//! `request` is what a request pays: the token read from its head and hashed, its user looked up, the question made, its decision looked
//! up. It must cost less than 2 µs, with the caches full as well, and with eight threads at once.
//!
//! Not by criterion: it is CPU time that is counted, of the threads that ask. More threads than processors have to wait for each other, and
//! so has anybody on a machine that does other things, too.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/reviewer.rs"]
mod reviewer;
#[path = "support/token.rs"]
mod token;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method};
use prometheus::Registry;
use tokio::runtime::Builder;
use weir::api::request_info::RequestInfo;
use weir::auth::attributes::Attributes;
use weir::auth::authenticator::Authenticator;
use weir::auth::authorizer::Authorizer;
use weir::auth::decision::DecisionSource;
use weir::auth::forbidden::forbidden;
use weir::auth::metrics::AuthMetrics;
use weir::auth::peer::Peer;
use weir::auth::user::User;
use weir::config::{AuthenticationConfig, AuthorizationConfig};
use weir::upstream::Upstream;
use weir::upstream::metrics::UpstreamMetrics;

const PATH: &str = "/api/v1/namespaces/kube-system/pods";
const QUERY: &str = "fieldSelector=spec.nodeName%3Dnode-17&labelSelector=app%3Dweb&limit=500";
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
/// Tokens and decisions that are held besides: more than there is room for.
const OTHERS: usize = 100_000;
const THREADS: usize = 8;
const ROUNDS: usize = 15;
/// The scheduler counts by the millisecond or so; a round has many.
const COUNT: u32 = 40_000;
/// Nothing expires meanwhile.
const TTL: Duration = Duration::from_secs(3600);

/// What judges, and one client.
struct Gate {
    authenticator: Arc<Authenticator>,
    authorizer: Arc<Authorizer>,
    peer: Peer,
    headers: HeaderMap,
}

impl Gate {
    async fn new() -> Self {
        let registry = Registry::new();
        let metrics = UpstreamMetrics::register(&registry).expect("metrics");
        let upstream = Upstream::new(&reviewer::start().await, metrics).await.expect("an upstream");
        let metrics = AuthMetrics::register(&registry).expect("metrics");
        let config = AuthenticationConfig { token_ttl: TTL, ..AuthenticationConfig::default() };
        let none = Duration::ZERO;
        let authenticator = Authenticator::start(&config, none, upstream.clone(), &metrics).await;
        let config = AuthorizationConfig { allow_ttl: TTL, ..AuthorizationConfig::default() };
        Self {
            authenticator: authenticator.expect("no files are read"),
            authorizer: Authorizer::new(&config, upstream, None, metrics.authorization),
            peer: Peer::new(None, Some(ADDRESS)),
            headers: showing("one"),
        }
    }

    async fn user(&self, headers: &HeaderMap) -> Arc<User> {
        let presented = self.authenticator.presented_credential(&self.peer, headers);
        let found = self.authenticator.authenticate_from(&presented, self.peer.address).await;
        found.expect("the token is good").user
    }

    /// As a request does it; where its decision came from.
    async fn admit(&self, info: &RequestInfo) -> DecisionSource {
        let user = self.user(&self.headers).await;
        let decision = self.authorizer.authorize(&user, &Attributes::from_request(info)).await;
        decision.expect("it is answered").source
    }

    async fn remember(&self, info: &RequestInfo) {
        // A cache that is full takes in what is asked for more than once.
        for _ in 0..100 {
            self.admit(info).await;
        }
        assert_eq!(self.admit(info).await, DecisionSource::Cached);
    }

    /// Other tokens and decisions, until there is no more room.
    async fn fill(&self) {
        const AT_ONCE: usize = 64;
        let user = &self.user(&self.headers).await;
        let others = stream::iter(0..OTHERS).map(|n| async move {
            self.user(&showing(&n.to_string())).await;
            let info = RequestInfo::parse(&Method::GET, &format!("{PATH}/pod-{n}"), "");
            self.authorizer
                .authorize(user, &Attributes::from_request(&info))
                .await
                .expect("it is answered");
        });
        others.buffer_unordered(AT_ONCE).for_each(|()| std::future::ready(())).await;
    }

    /// [`COUNT`] requests.
    async fn many(&self, info: &RequestInfo) {
        for _ in 0..COUNT {
            assert_eq!(black_box(self).admit(black_box(info)).await, DecisionSource::Cached);
        }
    }
}

/// A head with a token of a service account's length.
fn showing(name: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {}", token::token(name)));
    HeaderMap::from_iter([(http::header::AUTHORIZATION, value.expect("it is ASCII"))])
}

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = &runtime.expect("a runtime");
    let gate = &runtime.block_on(Gate::new());
    let plain = &RequestInfo::parse(&Method::GET, PATH, "");
    let selecting = &RequestInfo::parse(&Method::GET, PATH, QUERY);
    println!("CPU time of one, median of {ROUNDS} rounds of {COUNT}");
    let user = runtime.block_on(gate.user(&gate.headers));
    for (name, info) in [("plain", plain), ("selectors", selecting)] {
        runtime.block_on(gate.remember(info));
        let attributes = Attributes::from_request(info);
        measure(&format!("attributes, {name}"), 1, &|| {
            for _ in 0..COUNT {
                black_box(Attributes::from_request(black_box(info)));
            }
        });
        measure(&format!("decision, {name}"), 1, &|| {
            runtime.block_on(async {
                for _ in 0..COUNT {
                    let decision =
                        gate.authorizer.authorize(black_box(&user), black_box(&attributes));
                    assert!(
                        decision.await.is_ok_and(|found| found.source == DecisionSource::Cached)
                    );
                }
            });
        });
    }
    measure("token", 1, &|| {
        runtime.block_on(async {
            for _ in 0..COUNT {
                black_box(gate.user(black_box(&gate.headers)).await);
            }
        });
    });
    let requests = || runtime.block_on(gate.many(plain));
    measure("request", 1, &requests);
    measure(&format!("request, {THREADS} threads"), THREADS, &requests);
    runtime.block_on(async {
        gate.fill().await;
        gate.remember(plain).await;
    });
    measure("request, caches full", 1, &requests);
    measure(&format!("request, caches full, {THREADS} threads"), THREADS, &requests);
    let attributes = Attributes::from_request(plain);
    measure("403", 1, &|| {
        for _ in 0..COUNT {
            black_box(forbidden(black_box(&user), black_box(&attributes), "").to_json());
        }
    });
}

/// What `work`, which does something [`COUNT`] times, costs by one, done by so many threads at once.
fn measure(name: &str, threads: usize, work: &(dyn Fn() + Sync)) {
    let round = || -> Duration {
        let together = Barrier::new(threads);
        let one = || {
            together.wait();
            let before = cpu::of("/proc/thread-self");
            work();
            cpu::of("/proc/thread-self").saturating_sub(before)
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        })
    };
    round();
    let mut rounds: Vec<Duration> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_unstable();
    let median = rounds.get(ROUNDS / 2).copied().unwrap_or_default();
    let one = median.as_secs_f64() * 1e6 / f64::from(COUNT) / threads as f64;
    println!("{name:34} {one:>8.2} us");
}
