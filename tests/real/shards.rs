//! Shard selectors (KEP-5866), before an API server whose feature gate is on, and before one whose
//! gate is off.

use futures::future::join_all;
use http::Method;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::fan_out::Cost;
use crate::suite::corpus::{cases, seed};
use crate::suite::expected::Expect;
use crate::suite::run::{Case, Report, Sides, prepare, run};
use crate::suite::wire::{Call, Endpoint};
use crate::support::Weir;
use crate::wait::eventually;

/// The whole corpus, with shard selectors of all forms. The cache answers as many reads with one
/// as without.
pub(crate) fn answers() {
    let plane = ControlPlane::start_with(&[GATE]);
    let report = ask(&plane, |case, selector| {
        let is_plain = PLAIN.contains(&selector);
        // A GET ignores a selector; every other read by one in another form is forwarded.
        if is_plain { case.expect } else { Expect::Either }
    });
    assert!(report.count(200, true) > 1000, "hardly any answer comes from the cache");
    assert!(report.count(500, false) > 100, "hardly any selector is refused");
    report.finish("shards");
}

/// The API server ignores the selectors.
pub(crate) fn without() {
    let plane = ControlPlane::start();
    let report = ask(&plane, |_, _| Expect::Either);
    report.finish("shards without the gate");
}

fn ask(plane: &ControlPlane, expect: impl Fn(&Case, &str) -> Expect) -> Report {
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "cache: {forwardBudget: 4096}\n");
    Runtime::new().unwrap().block_on(async {
        let sides = Sides { direct: plane.endpoint(ADMIN), through: through(&weir), moves: true };
        let marks = prepare(&sides.direct, std::slice::from_ref(&sides.through), true).await;
        let mut rng = fastrand::Rng::with_seed(seed());
        let cases = cases(&marks, SAMPLED).into_iter().map(|mut case| {
            let selectors = if rng.u8(..4) > 0 { &PLAIN[..] } else { &OTHER };
            let selector = *rng.choice(selectors).unwrap();
            case.expect = expect(&case, selector);
            let path = &mut case.call.path;
            let separator = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{separator}shardSelector={selector}"));
            case
        });
        run(&sides, cases.collect()).await
    })
}

/// Each watch shows the events of its shard, byte for byte, in both encodings.
pub(crate) fn watches() {
    let plane = ControlPlane::start_with(&[GATE]);
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let (direct, through) = (plane.endpoint(ADMIN), through(&weir));
        for (round, form) in ["application/json", PROTOBUF].into_iter().enumerate() {
            let warm = Call::get("/api/v1/configmaps?resourceVersion=0").header("accept", form);
            eventually("the cache is ready", async || through.send(&warm).await.cache() == "hit")
                .await;
            let all = SHARDS + u32::try_from(round).unwrap() + 1;
            let calls: Vec<_> = (0..SHARDS).map(|number| watch(number, form)).collect();
            let through = join_all(calls.iter().map(|call| through.send(call)));
            let upstream = join_all(calls.iter().map(|call| direct.send(call)));
            let written = async {
                // Those that were sent directly, and one of Weir for each encoding.
                eventually("the watches are open", async || {
                    Cost::read(&plane).watches == f64::from(all)
                })
                .await;
                write(&direct, round).await;
            };
            let (through, upstream, ()) = tokio::join!(through, upstream, written);
            let mut events = 0;
            for ((through, upstream), call) in through.iter().zip(&upstream).zip(&calls) {
                assert_eq!(through.cache(), "hit", "{call}");
                assert!(through.body == upstream.body, "{call} differs");
                let text = String::from_utf8_lossy(&through.body).into_owned();
                events += text.matches(&format!("shard-{round}-")).count();
            }
            assert_eq!(events, 3 * OBJECTS, "each event is of one shard, in {form}");
        }
    });
}

/// Creates, changes and deletes objects.
async fn write(direct: &Endpoint, round: usize) {
    let collection = "/api/v1/namespaces/default/configmaps";
    for number in 0..OBJECTS {
        let object = json!({"metadata": {"name": format!("shard-{round}-{number:02}")}});
        assert_eq!(direct.send(&Call::json(Method::POST, collection, &object)).await.status, 201);
    }
    for number in 0..OBJECTS {
        let path = format!("{collection}/shard-{round}-{number:02}");
        let change = Call::json(Method::PATCH, &path, &json!({"data": {"a": "b"}}));
        assert_eq!(direct.send(&change).await.status, 200);
        assert_eq!(direct.send(&Call::new(Method::DELETE, path)).await.status, 200);
    }
}

fn watch(number: u32, form: &str) -> Call {
    let bound = |number| format!("0x{:016x}", (u128::from(number) << 64) / u128::from(SHARDS));
    let (start, end) = (bound(number), bound(number + 1));
    let shard = format!("shardRange(object.metadata.uid,'{start}','{end}')");
    let path = "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=10";
    Call::get(format!("{path}&shardSelector={shard}")).header("accept", form)
}

fn through(weir: &Weir) -> Endpoint {
    Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into())
}

/// Selectors in the form that Weir reads.
const PLAIN: [&str; 6] = [
    "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')",
    "shardRange(object.metadata.uid,%20'0x8000000000000000',%20'0x10000000000000000')",
    "+shardRange(object.metadata.uid,%220x4000000000000000%22,'0x5000000000000000')+||%0AshardRange(object.metadata.uid,'0xc000000000000000','0xf000000000000000')",
    "shardRange(object.metadata.namespace,'0x0000000000000000','0x8000000000000000')",
    // The hash of no namespace, which is that of cluster-scoped objects.
    "shardRange(object.metadata.namespace,'0xcbf29ce484222325','0xcbf29ce484222326')",
    "",
];

/// Those that the API server refuses, and one that it reads.
const OTHER: [&str; 7] = [
    "x",
    "%20",
    "shardRange(object.metadata.name,'0x0000000000000000','0x8000000000000000')",
    "shardRange(object.metadata.uid,'0x0','0x8000000000000000')",
    "shardRange(object.metadata.uid,'0x8000000000000000','0x0000000000000000')",
    "shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')||shardRange(object.metadata.namespace,'0x0000000000000000','0x8000000000000000')",
    "(shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000'))",
];

const GATE: &str = "--feature-gates=ShardedListAndWatch=true";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const SHARDS: u32 = 64;
const OBJECTS: usize = 40;
const SAMPLED: usize = 2000;
