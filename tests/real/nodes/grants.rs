//! A kubelet's permissions change with its pods: a secret becomes readable with the first pod that
//! references it, and stops being readable with the last.

use std::fmt;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use tokio::task::JoinHandle;

use super::compare::{WATCH, assert_alike, both};
use super::testbed::{PODS_PATH, Testbed, delete, named, pod};
use crate::suite::frames::Frames;
use crate::suite::objects::create;
use crate::suite::run::HIT;
use crate::suite::wire::{Call, Connection, Endpoint};
use crate::wait::eventually;

/// The settings that bound these times.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// How long a denial is cached.
    pub(super) denied: Duration,
    /// `allowTTL`.
    pub(super) allowed: Duration,
}

/// The times from kube-apiserver's answer to Weir's.
pub(super) struct Times {
    /// Until a secret may be read, which Weir had refused a moment before.
    pub(super) granted: Duration,
    /// Until a secret may no longer be read.
    pub(super) revoked: Duration,
    /// Until a watch of it ends.
    pub(super) watch: Duration,
    /// The interval at which the watch was checked.
    pub(super) interval: Duration,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { granted, revoked, watch, interval } = self;
        write!(
            f,
            "it may be read after {granted:.1?}, and no more after {revoked:.1?}; a watch of it ends after \
             {watch:.1?} (watches are checked each {interval:.0?})"
        )
    }
}

/// Creates a pod that references a secret, and deletes it again. Holds the times to their bounds
/// of SECURITY.md.
pub(super) async fn come_and_go(testbed: &Testbed, node: &str, bounds: Bounds) -> Times {
    let admin = testbed.admin();
    let name = format!("{node}-late");
    create(&mut admin.connection(), SECRETS, &named(&name)).await;
    let mut connections = testbed.sides(node).map(|side| side.connection());
    let get = Call::get(format!("{SECRETS}/{name}?resourceVersion=0"));
    assert_alike(&get, &both(&mut connections, &get).await);

    create(&mut admin.connection(), PODS_PATH, &pod(node, &name, &[&name], &[])).await;
    let granted = times(&mut connections, &get, 200).await;
    within("a secret may be read", granted, bounds.denied);

    let [_, through] = testbed.sides(node);
    let watch = watch(&through, &name).await;
    delete(&admin, &format!("{PODS_PATH}/{name}")).await;
    let began = Instant::now();
    let revoked = times(&mut connections, &get, 403).await;
    let interval = testbed.weir().metric("weir_watch_recheck_interval_seconds", &[]);
    let interval = Duration::from_secs_f64(interval);
    let watch_bound = interval.mul_f64(1.5) + bounds.allowed;
    let ended = tokio::time::timeout(watch_bound + 2 * SLACK, watch).await;
    let ended = ended.expect("the watch ends").expect("it is read").duration_since(began);
    within("a secret may no longer be read", revoked, bounds.allowed);
    within("a watch of it ends", ended, watch_bound);
    assert_alike(&get, &both(&mut connections, &get).await);
    Times { granted, revoked, watch: ended, interval }
}

/// Waits until kube-apiserver answers with a status, and then until Weir does. Returns the time
/// between both.
async fn times([direct, through]: &mut [Connection; 2], call: &Call, status: u16) -> Duration {
    eventually(&format!("kube-apiserver: {call}: {status}"), async || {
        direct.send(call).await.status == status
    })
    .await;
    let began = Instant::now();
    eventually(&format!("Weir: {call}: {status}"), async || {
        let answer = through.send(call).await;
        assert!(matches!(answer.status, 200 | 403), "{call}: {}", answer.status);
        assert!(answer.status == 403 || answer.cache() == HIT, "{call} is not from the cache");
        answer.status == status
    })
    .await;
    began.elapsed()
}

/// Opens a watch of one secret, and returns when it ends.
async fn watch(through: &Endpoint, name: &str) -> JoinHandle<Instant> {
    let call = Call::get(format!("{SECRETS}?fieldSelector=metadata.name%3D{name}&{WATCH}"));
    let mut response = through.open(&call).await.expect("a response");
    assert_eq!(response.status().as_u16(), 200, "{call}");
    assert_eq!(response.headers()["x-weir-cache"], HIT, "{call}");
    tokio::spawn(async move {
        while let Some(Ok(_)) = response.body_mut().frame().await {}
        Instant::now()
    })
}

/// How a node's first questions for a new pod's secret were answered.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// Secrets that were refused when the node asked first.
    pub(super) refused: usize,
    /// Times from the pod's event until the secret was read, sorted.
    pub(super) times: Vec<Duration>,
}

/// Creates pods with a secret each. The node asks for the secret as soon as it sees the pod, as
/// kubelets do, while the authorizer may not have seen it. It asks again every 0.2 s.
pub(super) async fn starts(testbed: &Testbed, node: &str, side: usize, count: usize) -> Starts {
    let admin = testbed.admin();
    let kubelet = &testbed.sides(node)[side];
    let watch = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&{WATCH}");
    let mut frames = Frames::new(kubelet.open(&Call::get(watch)).await.expect("a response"));
    let (mut connection, mut writer) = (kubelet.connection(), admin.connection());
    let mut starts = Starts::default();
    for number in 0..count {
        let name = format!("{node}-start-{side}-{number}");
        create(&mut writer, SECRETS, &named(&name)).await;
        let pod = pod(node, &name, &[&name], &[]);
        let call = Call::json(Method::POST, PODS_PATH, &pod);
        let (_, began) = tokio::join!(writer.send(&call), added(&mut frames, &name));
        let get = Call::get(format!("{SECRETS}/{name}?resourceVersion=0"));
        let mut first = true;
        while connection.send(&get).await.status != 200 {
            starts.refused += usize::from(first);
            first = false;
            assert!(began.elapsed() < DEADLINE, "never readable: {get}");
            tokio::time::sleep(ASK_INTERVAL).await;
        }
        starts.times.push(began.elapsed());
        delete(&admin, &format!("{PODS_PATH}/{name}")).await;
    }
    starts.times.sort();
    starts
}

/// Reads until a pod is added.
async fn added(frames: &mut Frames, name: &str) -> Instant {
    let read = async {
        loop {
            let frame = frames.next().await.expect("the watch goes on");
            if frame.event == "ADDED" && frame.key.ends_with(name) {
                return Instant::now();
            }
        }
    };
    tokio::time::timeout(DEADLINE, read).await.expect("the pod is added")
}

fn within(what: &str, took: Duration, bound: Duration) {
    let bound = bound + SLACK;
    assert!(took <= bound, "{what} after {took:?}, which must be within {bound:?}");
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// The delay that a busy machine adds to each time.
const SLACK: Duration = Duration::from_secs(7);
const DEADLINE: Duration = Duration::from_secs(60);
const ASK_INTERVAL: Duration = Duration::from_millis(200);
