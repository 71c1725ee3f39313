//! The memory of clients that read nothing, and of long selectors.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::tokens::SETTING;
use crate::control_plane::{ADMIN, ControlPlane};
use crate::matrix::with;
use crate::matrix_suite::world::Setting;
use crate::suite::objects::create;
use crate::suite::wire::Call;
use crate::support::Weir;

/// Sixty indented lists of 25 MB that are not read.
pub(super) fn indented_lists() {
    unread("indented lists", 60, "resourceVersion=0&pretty=true");
}

/// A thousand watches with an initial state of 25 MB that are not read.
pub(super) fn initial_states() {
    unread("watches with an initial state", 1_000, "resourceVersion=0&watch=1&timeoutSeconds=300");
}

fn unread(what: &str, count: usize, query: &str) {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let mut connection = plane.endpoint(ADMIN).connection();
        for n in 0..25 {
            let object = json!({"metadata": {"name": format!("large-{n}")},
                "data": {"text": "x".repeat(1_000_000)}});
            create(&mut connection, "/api/v1/namespaces/default/configmaps", &object).await;
        }
        // The cache is warm once it has answered.
        let list = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
        let plain = crate::suite::wire::Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        while plain.send(&Call::get(list)).await.cache() != "hit" {}
        let before = settled(&weir).await;
        let request = format!(
            "GET /api/v1/namespaces/default/configmaps?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        );
        let (mut held, mut statuses) = (Vec::new(), BTreeMap::<String, usize>::new());
        for _ in 0..count {
            let mut stream = TcpStream::connect(("127.0.0.1", weir.plain_port())).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).await.unwrap();
            *statuses.entry(String::from_utf8_lossy(&head[9..]).into_owned()).or_default() += 1;
            held.push(stream);
        }
        let during = settled(&weir).await;
        eprintln!(
            "{count} {what} of 25 MB, not read: by status {statuses:?}, {:.0} MB before, {:.0} MB \
             while they are open; counted as held: {:.1} MB",
            before / 1e6,
            during / 1e6,
            weir.metric("weir_response_memory_bytes", &[]) / 1e6
        );
    });
}

/// 480 watches with selectors of 60 KB, where roles and bindings decide in Weir.
pub(super) fn selectors() {
    let setting = Setting { authorization: ", rbac: {enabled: true}", ..SETTING };
    with(setting, async |world| {
        let values: Vec<_> = (0..6_000).map(|n| format!("value{n:04}")).collect();
        let selector = format!("a%20in%20({})", values.join(","));
        let path = format!(
            "/api/v1/namespaces/a/configmaps?watch=1&resourceVersion=0&timeoutSeconds=300&labelSelector={selector}"
        );
        let endpoint = world.through.as_token(&world.tokens.token_of("admin"));
        let before = settled(&world.weir).await;
        let (mut held, mut statuses) = (Vec::new(), BTreeMap::<String, usize>::new());
        for _ in 0..480 {
            let response = endpoint.open(&Call::get(path.as_str())).await;
            let status = response.as_ref().map(|response| {
                let cache = response.headers().get("x-weir-cache");
                let cache = cache.map(|value| String::from_utf8_lossy(value.as_bytes()));
                format!("{} {}", response.status().as_u16(), cache.unwrap_or_default())
            });
            *statuses.entry(status.unwrap_or_default()).or_default() += 1;
            held.push(response);
        }
        let during = settled(&world.weir).await;
        eprintln!(
            "480 watches with selectors of {} bytes: {statuses:?}, {:.0} MB before, {:.0} MB while \
             they are open",
            selector.len(),
            before / 1e6,
            during / 1e6
        );
    });
}

/// Returns the resident memory once it no longer grows.
async fn settled(weir: &Weir) -> f64 {
    let mut last = 0.0;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = weir.metric("process_resident_memory_bytes", &[]);
        if now <= last * 1.01 {
            return now;
        }
        last = now;
    }
}
