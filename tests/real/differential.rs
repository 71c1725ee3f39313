//! The differential suite against a real kube-apiserver; see `tests/differential.rs`.

use fastrand::Rng;
use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::cuts::relay::Relay;
use crate::suite::churn::{Plan, churn};
use crate::suite::corpus::{cases, consistent_lists, document_cases, seed, some_cases};
use crate::suite::paging::walks;
use crate::suite::run::{Sides, prepare, run};
use crate::suite::wire::Endpoint;
use crate::support::Weir;

pub(crate) fn answers() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), CONFIG);
    Runtime::new().unwrap().block_on(async {
        let sides = Sides { direct: plane.endpoint(ADMIN), through: through(&weir), moves: true };
        let marks = prepare(&sides.direct, std::slice::from_ref(&sides.through), true).await;
        let report = run(&sides, cases(&marks, SAMPLED)).await;
        for (status, cache) in [(200, true), (200, false), (400, false), (404, false), (406, false)]
        {
            assert!(report.count(status, cache) > 10, "{status} {cache} hardly ever came up");
        }
        report.finish("answers");
        let documents = document_cases(&sides).await;
        run(&sides, documents).await.finish("documents");
    });
}

/// Lists without a resourceVersion come from the cache.
pub(crate) fn consistent() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), CONSISTENT);
    Runtime::new().unwrap().block_on(async {
        let sides = Sides { direct: plane.endpoint(ADMIN), through: through(&weir), moves: true };
        let marks = prepare(&sides.direct, std::slice::from_ref(&sides.through), true).await;
        let report = run(&sides, consistent_lists(&marks, SAMPLED)).await;
        assert!(report.count(200, true) > 500, "hardly any list comes from the cache");
        report.finish("consistent lists");
    });
}

pub(crate) fn answers_through_two() {
    let plane = ControlPlane::start();
    let inner = Weir::start(&plane.kubeconfig(ADMIN), CONFIG);
    let outer = Weir::start(&inner.kubeconfig(), CONFIG);
    Runtime::new().unwrap().block_on(async {
        let sides = Sides { direct: plane.endpoint(ADMIN), through: through(&outer), moves: true };
        let weirs = [through(&inner), through(&outer)];
        let marks = prepare(&sides.direct, &weirs, true).await;
        run(&sides, some_cases(&marks, SAMPLED / 2)).await.finish("a chain");
    });
}

/// Watches in every form while objects change and connections to the upstream are cut, through one
/// Weir and through two.
pub(crate) fn watches() {
    // Only the bookmark that ends an initial state shows which state it was.
    let plane = ControlPlane::start_with_watch_list();
    Runtime::new().unwrap().block_on(async {
        let relay = Relay::start(&plane.kubeconfig(ADMIN)).await;
        let inner = Weir::start(&relay.kubeconfig, "");
        let outer = Weir::start(&inner.kubeconfig(), "");
        let sides = vec![plane.endpoint(ADMIN), through(&inner), through(&outer)];
        let plan = Plan { seed: seed(), writers: 3, writes: 700, clients: 74 };
        // A reflector waits longer after each break, as client-go's does.
        let mut calls = 0;
        let cut = |rng: &mut Rng| {
            calls += 1;
            if calls % 5 == 0 {
                relay.cut(rng);
            }
        };
        churn(sides, plan, cut).await;
    });
}

pub(crate) fn pages() {
    let plane = ControlPlane::start();
    let weirs = [(); 2].map(|()| Weir::start(&plane.kubeconfig(ADMIN), ""));
    Runtime::new().unwrap().block_on(async {
        let sides = [plane.endpoint(ADMIN), through(&weirs[0]), through(&weirs[1])];
        prepare(&sides[0], &sides[1..], true).await;
        walks(&sides, &PAGED, seed(), WALKS).await;
    });
}

fn through(weir: &Weir) -> Endpoint {
    Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into())
}

/// Room for hundreds of forwarded watches at once.
const CONFIG: &str = "cache: {forwardBudget: 4096}\n";

const CONSISTENT: &str = "cache: {forwardBudget: 4096, consistentLists: always}\n";

const PAGED: [&str; 4] = [
    "/api/v1/configmaps",
    "/api/v1/namespaces/a/configmaps",
    "/apis/example.com/v1/widgets",
    "/apis/example.com/v1/namespaces/a/widgets",
];

const SAMPLED: usize = 2500;
const WALKS: usize = 120;
