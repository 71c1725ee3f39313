//! The trace context of a request (`traceparent`, `tracestate`, `baggage`) passes as it is: on
//! requests that are forwarded, and on upgrades.

use http::Method;

use crate::client::{Call, fetch, send};
use crate::harness::{POD, Proxy};

/// The second has a version of which nothing is known yet, and upper-case letters.
const CONTEXTS: [[(&str, &str); 3]; 2] = [
    [
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7"),
        ("baggage", "userId=alice;prop=1, isProduction=false"),
    ],
    [
        ("traceparent", "cc-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-00-more"),
        ("tracestate", ""),
        ("baggage", "a=%20b"),
    ],
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_context_passes_byte_for_byte() {
    let proxy = Proxy::seeded().await;
    for context in CONTEXTS {
        let with =
            |call: Call| context.iter().fold(call, |call, (name, value)| call.header(name, value));
        let log = format!("{POD}/log");
        let answer = fetch(proxy.plain(), &with(Call::get(&log))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let upgrade = Call::get(&format!("{POD}/exec?command=ls"))
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .header("x-stream-protocol-version", "v4.channel.k8s.io");
        let mut upgrade = with(upgrade);
        upgrade.method = Method::POST;
        assert_eq!(send(proxy.plain(), &upgrade).await.status(), 101);
        for path in [log, format!("{POD}/exec")] {
            let recent = proxy.upstream.requests().recent();
            let received = recent.iter().rev().find(|request| request.path == path).unwrap();
            for (name, value) in context {
                let values: Vec<_> = received.headers.get_all(name).iter().collect();
                assert_eq!(values, [value], "{name} of {path}");
            }
        }
    }
}
