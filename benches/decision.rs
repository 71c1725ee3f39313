//! Measures authentication and authorization of a request whose token and decision are cached, and
//! the encoding of a 403 response.
//!
//! `request` is the whole cost for a request: it reads and hashes the token, looks up its user,
//! constructs the attributes and looks up the decision. It must cost less than 2 µs, also with full
//! caches and with eight threads at once.
//!
//! The figures are CPU time of the measured threads, which criterion cannot measure. Wall time
//! would include waiting: for each other, since there are more threads than processors, and for
//! other programs.

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
use weir::auth::DecisionSource;
use weir::auth::attributes::Attributes;
use weir::auth::authenticator::Authenticator;
use weir::auth::authorizer::Authorizer;
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
/// The number of other tokens and decisions that are looked up to fill the caches: more than they
/// hold.
const OTHERS: usize = 100_000;
const THREADS: usize = 8;
const ROUNDS: usize = 15;
/// Operations per round. A round takes many times the scheduler's resolution of about a
/// millisecond.
const COUNT: u32 = 40_000;
/// Longer than the run, so that nothing expires.
const TTL: Duration = Duration::from_secs(3600);

/// Authenticator, authorizer, and the address and headers of one client.
struct Fixture {
    authenticator: Arc<Authenticator>,
    authorizer: Arc<Authorizer>,
    peer: Peer,
    headers: HeaderMap,
}

impl Fixture {
    async fn new() -> Self {
        let registry = Registry::new();
        let metrics = UpstreamMetrics::register(&registry).expect("metrics");
        let upstream = Upstream::new(&reviewer::start().await, metrics).await.expect("an upstream");
        let metrics = AuthMetrics::register(&registry).expect("metrics");
        let mut config = AuthenticationConfig::default();
        config.tokens.ttl = TTL;
        let none = Duration::ZERO;
        let authenticator = Authenticator::start(&config, none, upstream.clone(), &metrics).await;
        let config = AuthorizationConfig { allow_ttl: TTL, ..AuthorizationConfig::default() };
        Self {
            authenticator: authenticator.expect("no files are read"),
            authorizer: Authorizer::new(&config, upstream, None, metrics.authorization),
            peer: Peer::new(None, Some(ADDRESS)),
            headers: bearer_headers("one"),
        }
    }

    async fn user(&self, headers: &HeaderMap) -> Arc<User> {
        let presented = self.authenticator.presented_credential(&self.peer, headers);
        let identity = self.authenticator.authenticate_from(&presented, &self.peer).await;
        identity.expect("the token is good").user
    }

    /// Authenticates and authorizes a request, and returns the source of the decision.
    async fn authorize(&self, info: &RequestInfo) -> DecisionSource {
        let user = self.user(&self.headers).await;
        let decision = self.authorizer.authorize(&user, &Attributes::from_request(info)).await;
        decision.expect("it is answered").source
    }

    async fn ensure_cached(&self, info: &RequestInfo) {
        // A full cache only admits a key that is looked up repeatedly.
        for _ in 0..100 {
            self.authorize(info).await;
        }
        assert_eq!(self.authorize(info).await, DecisionSource::Cached);
    }

    /// Looks up other tokens and decisions until the caches are full.
    async fn fill_caches(&self) {
        const AT_ONCE: usize = 64;
        let user = &self.user(&self.headers).await;
        let others = stream::iter(0..OTHERS).map(|n| async move {
            self.user(&bearer_headers(&n.to_string())).await;
            let info = RequestInfo::parse(&Method::GET, &format!("{PATH}/pod-{n}"), "");
            self.authorizer
                .authorize(user, &Attributes::from_request(&info))
                .await
                .expect("it is answered");
        });
        others.buffer_unordered(AT_ONCE).for_each(|()| std::future::ready(())).await;
    }

    /// Authorizes [`COUNT`] requests.
    async fn authorize_repeatedly(&self, info: &RequestInfo) {
        for _ in 0..COUNT {
            assert_eq!(black_box(self).authorize(black_box(info)).await, DecisionSource::Cached);
        }
    }
}

/// Returns headers with a token of the length of a service account's.
fn bearer_headers(name: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {}", token::token(name)));
    HeaderMap::from_iter([(http::header::AUTHORIZATION, value.expect("it is ASCII"))])
}

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = &runtime.expect("a runtime");
    let fixture = &runtime.block_on(Fixture::new());
    let plain = &RequestInfo::parse(&Method::GET, PATH, "");
    let selecting = &RequestInfo::parse(&Method::GET, PATH, QUERY);
    println!("CPU time per operation, median of {ROUNDS} rounds of {COUNT}");
    let user = runtime.block_on(fixture.user(&fixture.headers));
    for (name, info) in [("plain", plain), ("selectors", selecting)] {
        runtime.block_on(fixture.ensure_cached(info));
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
                        fixture.authorizer.authorize(black_box(&user), black_box(&attributes));
                    assert!(
                        decision
                            .await
                            .is_ok_and(|decision| decision.source == DecisionSource::Cached)
                    );
                }
            });
        });
    }
    measure("token", 1, &|| {
        runtime.block_on(async {
            for _ in 0..COUNT {
                black_box(fixture.user(black_box(&fixture.headers)).await);
            }
        });
    });
    let requests = || runtime.block_on(fixture.authorize_repeatedly(plain));
    measure("request", 1, &requests);
    measure(&format!("request, {THREADS} threads"), THREADS, &requests);
    runtime.block_on(async {
        fixture.fill_caches().await;
        fixture.ensure_cached(plain).await;
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

/// Measures `work`, which runs an operation [`COUNT`] times, on `threads` threads at once, and
/// prints the CPU time per operation.
fn measure(name: &str, threads: usize, work: &(dyn Fn() + Sync)) {
    let round = || -> Duration {
        let together = Barrier::new(threads);
        let one = || {
            together.wait();
            let before = cpu::time_of("/proc/thread-self");
            work();
            cpu::time_of("/proc/thread-self").saturating_sub(before)
        };
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
            handles.into_iter().map(|thread| thread.join().expect("a thread ends")).sum()
        })
    };
    round();
    let mut rounds: Vec<Duration> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_unstable();
    let median = rounds.get(ROUNDS / 2).copied().unwrap_or_default();
    let one = median.as_secs_f64() * 1e6 / f64::from(COUNT) / threads as f64;
    println!("{name:34} {one:>8.2} us");
}
