//! Several API servers as the upstream: requests and reflectors go to those that serve.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::Method;
use weir::config::Config;
use weir::simulator::{Action, LoggedRequest, Simulator, SimulatorOptions};

use crate::client::Call;
use crate::harness::{Proxy, configmap, seed};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/namespaces/ns1/configmaps";
const ANY: &str = "resourceVersion=0";

/// A Weir before three API servers, each with an address of its own.
pub(crate) struct Rig {
    pub(crate) proxy: Proxy,
    pub(crate) servers: Vec<SocketAddr>,
}

impl Rig {
    /// Names the servers in the configuration.
    pub(crate) async fn new() -> Self {
        let upstream = three_servers().await;
        let servers = addresses(&upstream).await;
        let urls = servers.iter().map(|address| format!("http://{address}")).collect();
        let adjust = |config: &mut Config| config.upstream.endpoints.static_urls = urls;
        let rig = Self { proxy: Proxy::before(upstream, "", adjust).await, servers };
        rig.until_usable(&rig.servers).await;
        rig
    }

    pub(crate) async fn until_usable(&self, servers: &[SocketAddr]) {
        for server in servers {
            self.until(*server, "usable").await;
        }
    }

    pub(crate) async fn until(&self, server: SocketAddr, state: &str) {
        eventually(&format!("{server} is {state}"), async || {
            self.is(server, state).await && self.is_admitted(server).await
        })
        .await;
    }

    pub(crate) async fn is(&self, server: SocketAddr, state: &str) -> bool {
        let labels = [format!("server=\"http://{server}\""), format!("state=\"{state}\"")];
        let labels = labels.each_ref().map(String::as_str);
        self.proxy.metric("weir_upstream_server_state", &labels).await == 1.0
    }

    pub(crate) async fn is_admitted(&self, server: SocketAddr) -> bool {
        let label = format!("server=\"http://{server}\"");
        self.proxy.metric("weir_upstream_server_admitted", &[&label]).await == 1.0
    }

    pub(crate) async fn write(&self, name: &str) -> u16 {
        let call = Call::new(Method::POST, CONFIGMAPS).json(&configmap("ns1", name, 1));
        self.proxy.call(&call).await.status.as_u16()
    }

    /// Returns how many requests of clients each server received: writes.
    pub(crate) fn writes(&self) -> [usize; 3] {
        let recent = self.proxy.upstream.requests().recent();
        [0, 1, 2].map(|server| {
            recent
                .iter()
                .filter(|request| request.server == server && request.verb == "create")
                .count()
        })
    }
}

pub(crate) async fn three_servers() -> Simulator {
    let options = SimulatorOptions { servers: 3, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    upstream
}

pub(crate) async fn addresses(upstream: &Simulator) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for server in 0..3 {
        servers.push(upstream.start_server(server).await.unwrap());
    }
    servers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_go_on_when_one_of_three_servers_is_stopped() {
    let rig = Rig::new().await;
    for number in 0..20 {
        assert_eq!(rig.write(&format!("before-{number}")).await, 201);
    }
    rig.proxy.upstream.stop_server(0);
    let mut lost = 0;
    for number in 0..60 {
        match rig.write(&format!("after-{number}")).await {
            201 => {}
            // Sent on a connection that was just being closed.
            502 => lost += 1,
            code => panic!("{number}: {code}"),
        }
    }
    assert!(lost <= 1, "{lost}");
    // It is ejected, and comes back by itself.
    eventually("it is out", async || !rig.is(rig.servers[0], "usable").await).await;
    rig.proxy.upstream.start_server(0).await.unwrap();
    rig.until(rig.servers[0], "usable").await;
}

/// An administrator of the API servers finds Weir in their audit logs and metrics by its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_of_weir_itself_has_its_user_agent() {
    let rig = Rig::new().await;
    rig.proxy.get(&format!("{CONFIGMAPS}?{ANY}")).await;
    rig.proxy.upstream.stop_server(0);
    // A server that does not answer is checked.
    rig.until(rig.servers[0], "ejected").await;
    let recent = rig.proxy.upstream.requests().recent();
    let is_named = |request: &&LoggedRequest| {
        let agent = request.headers.get("user-agent").and_then(|agent| agent.to_str().ok());
        agent.is_some_and(|agent| agent.starts_with("weir/"))
    };
    let paths: BTreeSet<&str> =
        recent.iter().filter(is_named).map(|request| &*request.path).collect();
    for path in ["/version", "/readyz", "/api/v1/configmaps"] {
        assert!(paths.contains(path), "{path} of {paths:?}");
    }
    let others = recent
        .iter()
        .filter(|request| !is_named(request))
        .map(|request| (&request.path, &request.query));
    assert_eq!(others.collect::<Vec<_>>(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_server_gets_no_request() {
    let rig = Rig::new().await;
    rig.proxy.upstream.drain_server(1);
    rig.until(rig.servers[1], "draining").await;
    rig.proxy.upstream.requests().reset();
    for number in 0..60 {
        assert_eq!(rig.write(&format!("write-{number}")).await, 201);
    }
    let writes = rig.writes();
    assert_eq!((writes[1], writes.iter().sum::<usize>()), (0, 60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_client_that_may_be_stale_stay_on_one_server() {
    let rig = Rig::new().await;
    rig.proxy.upstream.requests().reset();
    for _ in 0..30 {
        let events = rig.proxy.get(&format!("/api/v1/events?{ANY}")).await;
        assert_eq!(events.status, 200);
        assert_ne!(events.cache(), "hit");
    }
    let recent = rig.proxy.upstream.requests().recent();
    let is_clients =
        |request: &&LoggedRequest| request.resource == "events" && request.query == ANY;
    let mut servers: Vec<usize> =
        recent.iter().filter(is_clients).map(|request| request.server).collect();
    assert_eq!(servers.len(), 30);
    servers.dedup();
    assert_eq!(servers.len(), 1, "{servers:?}");
}

/// The answer to a request that broke off with its connection, and may have been processed.
const LOST: u16 = 502;

/// Reads a list that only an API server writes, from any resourceVersion.
async fn table(rig: &Rig) -> (u16, String) {
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let call = Call::get(&format!("{CONFIGMAPS}?{ANY}")).header("accept", accept);
    let answer = rig.proxy.call(&call).await;
    let (status, text) = (answer.status.as_u16(), answer.text());
    if status != LOST {
        assert_eq!(answer.cache(), "forward; reason=form", "{status} {text}");
    }
    (status, text)
}

/// The client's server stops, and one of the others lags behind what the client was shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_server_goes_sees_no_older_state() {
    for lagging in [1, 2] {
        let rig = Rig::new().await;
        let upstream = &rig.proxy.upstream;
        assert_eq!(table(&rig).await.0, 200);
        let recent = upstream.requests().recent();
        let is_clients =
            |request: &&LoggedRequest| request.path == CONFIGMAPS && request.query == ANY;
        let home = recent.iter().rfind(is_clients).unwrap().server;
        upstream.pause_caches((home + lagging) % 3);
        upstream.store().create(configmap("ns1", "ahead", 1)).unwrap();
        eventually("the client sees it", async || table(&rig).await.1.contains("ahead")).await;
        upstream.stop_server(home);
        let mut lost = 0;
        for number in 0..10 {
            let (mut status, mut text) = table(&rig).await;
            // It was sent before the end of its connection was noticed.
            while status == LOST {
                lost += 1;
                assert!(lost <= 3, "{text}");
                (status, text) = table(&rig).await;
            }
            assert!(status == 200 && text.contains("ahead"), "{lagging} {number}: {status} {text}");
        }
    }
}

fn clients_lists(rig: &Rig) -> Vec<usize> {
    let recent = rig.proxy.upstream.requests().recent();
    let is_clients =
        |request: &&LoggedRequest| request.resource == "events" && request.query == "limit=7";
    recent.iter().filter(is_clients).map(|request| request.server).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_a_server_is_too_busy_for_goes_to_another_one_once() {
    const READ: &str = "/api/v1/events?limit=7";
    let rig = Rig::new().await;
    let upstream = &rig.proxy.upstream;
    upstream.faults().add("list", "events", 1, Action::TooManyRequests(1));
    assert_eq!(rig.proxy.get(READ).await.status, 200);
    let servers = clients_lists(&rig);
    assert!(servers.len() == 2 && servers[0] != servers[1], "{servers:?}");

    // The two others are too busy. The first one was so a moment ago, and is left alone.
    upstream.requests().reset();
    upstream.faults().add("list", "events", 2, Action::TooManyRequests(4));
    let refused = rig.proxy.get(READ).await;
    assert_eq!(
        (refused.status.as_u16(), refused.headers["retry-after"].to_str().unwrap()),
        (429, "4")
    );
    assert!(refused.text().contains("storage is (re)initializing"), "{}", refused.text());
    let servers = clients_lists(&rig);
    assert!(servers.len() == 2 && servers[0] != servers[1], "{servers:?}");
    assert!(rig.proxy.metric("weir_upstream_retries_total", &[]).await >= 2.0);
}

/// The servers refuse half of all attempts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_half_of_all_attempts_fail_the_servers_get_a_tenth_more_at_most() {
    const REQUESTS: u64 = 600;
    const READ: &str = "/api/v1/events?limit=7";
    let rig = Rig::new().await;
    let (faults, requests) = (rig.proxy.upstream.faults(), rig.proxy.upstream.requests());
    let (total, began) = (requests.total(), tokio::time::Instant::now());
    let mut random = fastrand::Rng::with_seed(1);
    let mut failed = 0;
    for _ in 0..REQUESTS {
        let refusals = (0..5).take_while(|_| random.bool()).count();
        faults.clear();
        faults.add("list", "events", refusals as u32, Action::TooManyRequests(1));
        failed += u64::from(rig.proxy.get(READ).await.status != 200);
    }
    let again = requests.count("list", "events") - REQUESTS;
    // Three a second are allowed in any case, which counts after the first ten seconds.
    let most = (total + REQUESTS) / 10 + 30 * (began.elapsed().as_secs() / 10);
    assert!((1..=most).contains(&again), "{again} of {REQUESTS}, most {most}");
    assert!(failed > REQUESTS / 4, "{failed} of {REQUESTS} failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_a_server_is_too_busy_for_is_not_sent_again() {
    let rig = Rig::new().await;
    rig.proxy.upstream.faults().add("create", "configmaps", 1, Action::TooManyRequests(1));
    assert_eq!(rig.write("busy").await, 429);
    assert_eq!(rig.writes().iter().sum::<usize>(), 1);
}

/// The reflector's server stops: its watch resumes at another one, and no client notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_a_client_outlives_the_server_of_its_reflector() {
    let rig = Rig::new().await;
    rig.proxy.warm("/api/v1/configmaps").await;
    rig.proxy.catch_up("/api/v1/configmaps").await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dlate");
    let mut watch = rig.proxy.watch(&path).await;
    assert_eq!(watch.cache(), "hit");
    let is_reflector = |request: &&LoggedRequest| {
        // A watch of three seconds is a proof of freshness, on any server.
        request.path == "/api/v1/configmaps"
            && request.verb == "watch"
            && !request.query.contains("timeoutSeconds=3&")
    };
    let current = || {
        let recent = rig.proxy.upstream.requests().recent();
        recent.iter().rfind(is_reflector).map(|watch| watch.server)
    };
    eventually("the reflector's watch begins", async || current().is_some()).await;
    let first = current();
    rig.proxy.upstream.stop_server(first.unwrap());
    eventually("the reflector moved", async || current() != first).await;
    rig.proxy.upstream.store().create(configmap("ns1", "late", 1)).unwrap();
    watch.until("late").await;
}
