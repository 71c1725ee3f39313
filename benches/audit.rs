//! Measures the audit log for a read that the cache answers. The log is a file, the policy has five
//! rules of which the last one matches, and the user is a service account.
//!
//! `hit` is the work in the request: it evaluates the policy, formats the line and queues it.
//! `written` is the time per event until a thousand events are in the file.

#![expect(clippy::unwrap_used, reason = "a bench")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::request::Parts;
use http::{Request, StatusCode};
use prometheus::Registry;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir::api::request_info::RequestInfo;
use weir::auth::audit::metrics::AuditMetrics;
use weir::auth::audit::{AuditLog, AuditResponse, AuditSubject, Staleness};
use weir::auth::peer::Peer;
use weir::auth::user::User;
use weir::config::{AuditBuffer, AuditConfig, AuditLevel, AuditOutput, AuditPolicy, AuditRule};

struct CachedRead {
    parts: Parts,
    info: RequestInfo,
    peer: Peer,
    user: User,
}

impl CachedRead {
    fn new() -> Self {
        let (parts, ()) =
            Request::get("/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt")
                .header("user-agent", "controller/v1.36.2 (linux/amd64) kubernetes/abcdef0")
                .header("authorization", "Bearer none")
                .body(())
                .unwrap()
                .into_parts();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), "");
        let groups =
            ["system:serviceaccounts", "system:serviceaccounts:apps", "system:authenticated"];
        let key = "authentication.kubernetes.io/credential-id".to_owned();
        let id = "JTI=7ee52be0-9045-4653-aa5e-0da57b8dccdc".to_owned();
        let user = User::new(
            "system:serviceaccount:apps:controller".to_owned(),
            "0da57b8d-9045-4653-aa5e-7ee52be0dccd".to_owned(),
            groups.map(str::to_owned).to_vec(),
            BTreeMap::from([(key, vec![id])]),
        );
        let peer = Peer::new(None, Some([10, 0, 0, 7].into()));
        Self { parts, info, peer, user }
    }

    async fn log(&self, log: &AuditLog) {
        let subject = AuditSubject { parts: &self.parts, info: &self.info, user: Some(&self.user) };
        if log.should_log(&subject) {
            log.response_complete(&AuditResponse {
                subject,
                peer: &self.peer,
                impersonated: None,
                decision: Some((true, "RBAC: allowed by ClusterRoleBinding \"controller\" of ClusterRole \"controller\" to ServiceAccount \"controller/apps\"")),
                stale: Staleness::default(),
                code: StatusCode::OK,
                status: None,
                audit_id: b"7ee52be0-9045-4653-aa5e-0da57b8dccdc",
                received: SystemTime::now(),
            })
            .await;
        }
    }
}

fn start(dir: &TempDir) -> Arc<AuditLog> {
    let none = |users: &str, verbs: &str| AuditRule {
        level: AuditLevel::None,
        users: vec![users.to_owned()],
        verbs: vec![verbs.to_owned()],
        ..AuditRule::default()
    };
    let rules = vec![
        none("system:kube-proxy", "watch"),
        none("system:apiserver", "get"),
        none("system:kube-scheduler", "list"),
        none("system:kube-controller-manager", "list"),
        AuditRule::default(),
    ];
    let output = Some(AuditOutput::File(dir.path().join("audit.log")));
    let config =
        AuditConfig { output, buffer: AuditBuffer::Blocking, policy: AuditPolicy { rules } };
    let metrics = AuditMetrics::register(&Registry::new()).unwrap();
    AuditLog::start(&config, metrics).unwrap().unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Measures the part of an event's cost that delays its request.
fn hit(criterion: &mut Criterion) {
    let (runtime, dir, hit) = (runtime(), tempfile::tempdir().unwrap(), CachedRead::new());
    let log = start(&dir);
    let mut group = criterion.benchmark_group("audit");
    // Criterion's default times would let the file grow to gigabytes.
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    group.bench_function("hit", |bencher| {
        bencher.iter(|| runtime.block_on(black_box(&hit).log(&log)));
    });
    group.finish();
    runtime.block_on(log.close());
}

/// Measures events until they are in the file.
fn written(criterion: &mut Criterion) {
    const EVENTS: u64 = 1000;
    let (runtime, hit) = (runtime(), CachedRead::new());
    let mut group = criterion.benchmark_group("audit");
    group.throughput(Throughput::Elements(EVENTS)).sample_size(20);
    group.bench_function("written", |bencher| {
        bencher.iter(|| {
            let dir = tempfile::tempdir().unwrap();
            let log = start(&dir);
            runtime.block_on(async {
                for _ in 0..EVENTS {
                    hit.log(&log).await;
                }
                log.close().await;
            });
        });
    });
    group.finish();
}

criterion_group!(benches, hit, written);
criterion_main!(benches);
