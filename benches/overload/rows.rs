//! The rows of the bench.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use weir::simulator::Simulator;

use crate::client::{Client, LIST, LIST_FORWARDED, Latencies, POD, POD_FORWARDED, Steady, steady};
use crate::crowd::Crowd;
use crate::floor::{self, Floor};
use crate::group::Group;
use crate::{USERS, weir};

/// Two clients beside a runaway one with 200 lists of 25 MB at once, all from the cache.
pub(crate) async fn lists(upstream: &Simulator) {
    let weir = weir(upstream, &[], None).await;
    let address = weir.address;
    fill(address).await;
    println!("\nlists: 200 lists of 25 MB at once from the cache");
    let [gets_alone, lists_alone] = victims(address, POD, LIST, RUN).await;
    let crowd = Crowd::start(address);
    sleep(Duration::from_secs(3)).await;
    let cpu = weir.cpu();
    let [gets, lists] = victims(address, POD, LIST, RUN).await;
    let cpu = weir.cpu().saturating_sub(cpu).as_secs_f64() / RUN.as_secs_f64();
    let counts = crowd.end().await;
    println!("  GETs alone:   {gets_alone}\n  GETs beside:  {gets}");
    println!("  lists alone:  {lists_alone}\n  lists beside: {lists}");
    println!("  the runaway:  {counts}; Weir used {cpu:.2} processors");
    println!("  slow GETs:    {}", gets.slow(Duration::from_millis(20)));
    println!("  slow lists:   {}", lists.slow(Duration::from_millis(100)));
}

/// Returns the latencies of GETs of one user, and of lists of another one. They have a thread of
/// their own: beside 200 tasks that read as fast as they can, theirs would wait for the bench.
async fn victims(
    address: SocketAddr,
    get: &'static str,
    list: &'static str,
    run: Duration,
) -> [Latencies; 2] {
    let measure = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(measure(address, get, list, run))
    };
    tokio::task::spawn_blocking(measure).await.expect("it ends")
}

async fn measure(
    address: SocketAddr,
    get: &'static str,
    list: &'static str,
    run: Duration,
) -> [Latencies; 2] {
    let ended = Arc::new(AtomicBool::new(false));
    let steady_task =
        |user, what, every| tokio::spawn(steady(user, address, what, every, Arc::clone(&ended)));
    let gets = steady_task(2, Steady::Get(get), Duration::from_millis(10));
    let lists = steady_task(3, Steady::Get(list), Duration::from_millis(500));
    sleep(run).await;
    ended.store(true, Ordering::Relaxed);
    [gets.await.expect("it ends"), lists.await.expect("it ends")]
}

/// The CPU time of a refusal, of a GET from the cache, and of a refusal by hyper alone. Few file
/// descriptors lead to the last stage.
pub(crate) async fn refusals(upstream: &Simulator) {
    let weir = weir(upstream, &[], Some(DESCRIPTORS)).await;
    let address = weir.address;
    fill(address).await;
    let mut idle: Vec<Client> = {
        let mut idle = Vec::new();
        let open = || std::fs::read_dir(format!("{}/fd", weir.proc())).map_or(0, Iterator::count);
        while open() < DESCRIPTORS * 96 / 100 && idle.len() < DESCRIPTORS {
            let mut client = Client::open(4, address).await;
            // A connection without a request is closed after half a minute.
            client.get(POD).await;
            idle.push(client);
            sleep(Duration::from_millis(5)).await;
        }
        idle
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    let first = idle.first_mut().expect("one connects");
    while first.get(LIST).await.code != 429 {
        assert!(Instant::now() < deadline, "nothing is refused within 10 s");
        sleep(Duration::from_millis(100)).await;
    }
    println!("\nrefusals: {} connections lead to the last stage", idle.len());
    let rest = idle.split_off(FLOODING);
    for (what, path, code) in [("a GET", POD, 200), ("a refusal", LIST, 429)] {
        bursts(what, &mut idle, &weir.proc(), path, code).await;
    }
    drop(rest);
    let floor = Floor::start().await;
    let mut clients = Vec::new();
    for _ in 0..FLOODING {
        clients.push(Client::open(4, floor.address).await);
    }
    bursts("a refusal by hyper alone", &mut clients, &floor.proc(), LIST, 429).await;
}

/// Prints the CPU time that a request takes in a process, over one connection and over all.
async fn bursts(what: &str, clients: &mut [Client], proc: &str, path: &str, code: u16) {
    for connections in [1, clients.len()] {
        let mut took = Duration::ZERO;
        for _ in 0..BURSTS {
            let before = cpu_of_threads(proc);
            let flood = clients.iter_mut().take(connections).map(|client| async move {
                for _ in 0..BURST {
                    assert_eq!(client.get(path).await.code, code, "{what}");
                }
            });
            futures::future::join_all(flood).await;
            took += cpu_of_threads(proc).saturating_sub(before);
        }
        let took = took.as_secs_f64() / f64::from(BURSTS * BURST) / connections as f64;
        println!("  {what} over {connections} connections: {:.1} us of CPU", took * 1e6);
    }
}

/// Returns the CPU time of the threads that a process has now, in nanoseconds: that of the process
/// has a resolution of 10 ms, and a burst takes 3. No thread ends in a burst.
fn cpu_of_threads(proc: &str) -> Duration {
    let tasks = std::fs::read_dir(format!("{proc}/task")).expect("it runs");
    let cpu_time = |task: std::io::Result<std::fs::DirEntry>| {
        crate::cpu::time_of(&task.expect("a thread").path().to_string_lossy())
    };
    tasks.map(cpu_time).sum()
}

/// A client beside 200 that ask the API server for 25 MB and read nothing.
pub(crate) async fn readers(upstream: &Simulator) {
    let weir = weir(upstream, &[], None).await;
    let address = weir.address;
    fill(address).await;
    println!("\nreaders: 200 clients ask the API server for 25 MB and read nothing");
    let alone = forwarded(address).await;
    let mut clients = Vec::new();
    for number in 0..200 {
        let mut client = Client::open(4 + number % (USERS - 4), address).await;
        client.ask("GET", LIST_FORWARDED, "").await;
        clients.push(client);
    }
    sleep(Duration::from_secs(2)).await;
    let beside = forwarded(address).await;
    for (name, [alone, beside]) in ["GETs", "leases"]
        .into_iter()
        .zip([0, 1].map(|index| [alone.get(index), beside.get(index)]))
    {
        if let (Some(alone), Some(beside)) = (alone, beside) {
            println!("  {name} alone:  {alone}\n  {name} beside: {beside}");
        }
    }
    drop(clients);
}

/// Returns the latencies of forwarded GETs and of renewed leases.
async fn forwarded(address: SocketAddr) -> [Latencies; 2] {
    let ended = Arc::new(AtomicBool::new(false));
    let steady_task = |user, what| {
        let every = Duration::from_millis(20);
        tokio::spawn(steady(user, address, what, every, Arc::clone(&ended)))
    };
    let (gets, leases) =
        (steady_task(2, Steady::Get(POD_FORWARDED)), steady_task(3, Steady::Renew));
    sleep(RUN).await;
    ended.store(true, Ordering::Relaxed);
    [gets.await.expect("it ends"), leases.await.expect("it ends")]
}

/// Lists of many users at rates up to three times what Weir can send, in 512 MiB.
pub(crate) async fn memory(upstream: &Simulator) {
    let group = Group::make(512 << 20, 50);
    let directories = group.as_ref().map_or(&[][..], Group::directories);
    let limited = if group.is_some() { "limited" } else { "NOT limited: no control group" };
    println!("\nmemory: 512 MiB and half a processor ({limited})");
    let mut weir = weir(upstream, directories, None).await;
    let address = weir.address;
    fill(address).await;
    let peak = closed(address).await;
    println!("  peak: {peak:.1} lists a second");
    let mut slow = Vec::new();
    for number in 0..100 {
        let mut client = Client::open(number % USERS, address).await;
        client.ask("GET", "/api/v1/pods?resourceVersion=0&pretty=true", "").await;
        slow.push(client);
    }
    for times in [0.5, 1.0, 3.0] {
        let ended = Arc::new(AtomicBool::new(false));
        let every = Duration::from_millis(50);
        let leases = tokio::spawn(steady(0, address, Steady::Renew, every, Arc::clone(&ended)));
        let every = Duration::from_millis(10);
        let gets = tokio::spawn(steady(1, address, Steady::Get(POD), every, Arc::clone(&ended)));
        let [good, refused, late] = open(address, peak * times).await;
        ended.store(true, Ordering::Relaxed);
        let (leases, gets) = (leases.await.expect("it ends"), gets.await.expect("it ends"));
        let part = good as f64 / RUN.as_secs_f64() / peak * 100.0;
        println!(
            "  {times} times the peak: {part:.0} % of it answered, {refused} refused, {late} late"
        );
        println!("    leases: {leases}\n    GETs:   {gets}");
        assert!(weir.runs(), "weir was killed");
    }
    if let Some((most, kills)) = group.as_ref().map(Group::used) {
        println!("  at most {most} MiB, with pages of files; {kills}");
    }
    drop((slow, weir));
    sleep(Duration::from_millis(200)).await;
}

/// Returns the lists a second that clients get who each send the next when they have one.
async fn closed(address: SocketAddr) -> f64 {
    let until = Instant::now() + RUN;
    let mut clients = JoinSet::new();
    for user in 2..10 {
        clients.spawn(async move {
            let mut client = Client::open(user, address).await;
            let mut lists = 0;
            while Instant::now() < until {
                lists += usize::from(client.get(LIST).await.code == 200);
            }
            lists
        });
    }
    clients.join_all().await.into_iter().sum::<usize>() as f64 / RUN.as_secs_f64()
}

/// Sends lists of all users at a rate, each when it is due. Returns how many were answered in time,
/// refused, and late.
async fn open(address: SocketAddr, per_second: f64) -> [usize; 3] {
    let began = Instant::now();
    let count = (per_second * RUN.as_secs_f64()) as usize;
    let idle: Vec<Vec<Client>> = (0..USERS).map(|_| Vec::new()).collect();
    let idle = Arc::new(Mutex::new(idle));
    let mut requests = JoinSet::new();
    for number in 0..count {
        sleep_until(began + Duration::from_secs_f64(number as f64 / per_second)).await;
        let (user, idle) = (2 + number % (USERS - 2), Arc::clone(&idle));
        requests.spawn(async move {
            let free = idle.lock().get_mut(user).and_then(Vec::pop);
            let mut client = match free {
                Some(client) => client,
                None => Client::open(user, address).await,
            };
            let code = timeout(IN_TIME, client.get(LIST)).await.map(|got| got.code);
            if code == Ok(429) {
                sleep(REFUSED_PAUSE).await;
            }
            if code.is_ok() {
                idle.lock().get_mut(user).expect("a user").push(client);
            }
            code
        });
    }
    let codes: Vec<_> = requests.join_all().await;
    let is = |code: &Result<u16, _>, wanted| matches!(code, Ok(code) if *code == wanted);
    let count = |wanted: u16| codes.iter().filter(|code| is(code, wanted)).count();
    [count(200), count(429), codes.iter().filter(|code| code.is_err()).count()]
}

/// Waits until Weir answers lists from its cache.
async fn fill(address: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut client = Client::open(0, address).await;
    while client.get(LIST).await.bytes < 20_000_000 {
        assert!(Instant::now() < deadline, "no list within 60 s");
    }
}

/// Runs as the floor: refuses every request in the same words. The rest of a refusal's CPU time is
/// Weir's own.
pub(crate) async fn run_floor() -> ! {
    let listener = floor::listen().await;
    loop {
        let (tcp, _) = listener.accept().await.expect("a connection");
        tcp.set_nodelay(true).expect("a socket");
        let refuse = service_fn(|_: Request<Incoming>| async {
            let response = Response::builder()
                .status(StatusCode::TOO_MANY_REQUESTS)
                .header(CONTENT_TYPE, "application/json")
                .header(RETRY_AFTER, "1")
                .body(Full::new(Bytes::from_static(STATUS)))
                .expect("a response");
            Ok::<_, Infallible>(response)
        });
        tokio::spawn(async move {
            drop(Builder::new().serve_connection(TokioIo::new(tcp), refuse).await);
        });
    }
}

/// How long each load runs.
const RUN: Duration = Duration::from_secs(15);
/// A list after more is of no use to its client.
const IN_TIME: Duration = Duration::from_secs(10);
/// How long a connection whose request was refused sends no other.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);
const BURSTS: u32 = 10;
const BURST: u32 = 150;
/// The connections of a flood of requests that are refused.
const FLOODING: usize = 16;
/// The limit of file descriptors of the row `refusals`.
const DESCRIPTORS: usize = 256;
const STATUS: &[u8] = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too many requests, please try again later","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#;
