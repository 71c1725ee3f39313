//! One cache of up to two million objects of 1 KB in protobuf: filling it, its memory, its pages,
//! and a relist while clients read.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use memchr::memmem;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::client::{Connection, PROTOBUF, connect, get, is_hit};
use crate::curve::{Curve, Law};
use crate::memory::{peak, resident};
use crate::source::{COLLECTION, LIST_OF_ONE, Source};
use crate::testbed::block_on;
use crate::weir_process::Weir;

const COUNTS: [usize; 4] = [50_000, 200_000, 600_000, 2_000_000];
const OBJECT_BYTES: usize = 1_000;
const PAGE_OBJECTS: usize = 500;
const TIMEOUT: Duration = Duration::from_secs(300);
const READ_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) fn grow() -> Curve {
    let names = [
        ("memory, bytes", Some(Law::Constant)),
        ("memory at the most while it is filled, bytes", Some(Law::Constant)),
        ("memory at the most while it is listed again, bytes", Some(Law::Constant)),
        ("filling, ns of CPU", Some(Law::Constant)),
        ("listing again, ns of CPU", Some(Law::Constant)),
        // Each page counts the objects that follow it, as kube-apiserver's does.
        ("a page of 500, µs of CPU in all", Some(Law::Linear)),
        ("the longest list of one object while it is listed again, ms in all", None),
    ];
    Curve::new(
        ("An object of 1 KB in one cache", "objects", "of an object"),
        names,
        COUNTS.map(|count| (count, block_on(measure(count)))),
    )
}

/// Returns the values in the order of their names.
async fn measure(count: usize) -> [f64; 7] {
    let (source, kubeconfig) = Source::start(count, OBJECT_BYTES, false).await;
    let limits = json!({"verify": "off", "totalBytesMax": "12Gi", "resourceBytesMax": "8Gi"});
    let weir = Weir::start(&kubeconfig, json!({"cache": limits})).await;
    let pid = weir.pid().to_string();
    let (memory_before, objects) = (resident(&pid), count as f64);
    let connection = connect(weir.address).await;
    let filled = wait_for(&connection, weir.address, source.resource_version()).await;
    let filling_cpu = weir.cpu();
    let filling_peak = peak(&pid);
    println!("{count}: filled in {:.1} s", filled.time.as_secs_f64());
    // The list's memory is freed within a moment.
    sleep(Duration::from_secs(3)).await;
    let memory = resident(&pid);
    let before = weir.cpu();
    let version = source.resource_version();
    read_pages(&connection, weir.address, version, count).await;
    let paging_cpu = weir.cpu() - before;
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak is reset");
    let before = weir.cpu();
    source.note_unseen_change();
    source.end_watches();
    let listed = wait_for(&connection, weir.address, source.resource_version()).await;
    println!("{count}: listed again in {:.1} s", listed.time.as_secs_f64());
    let nanoseconds = |cpu: Duration| cpu.as_secs_f64() * 1e9 / objects;
    [
        (memory - memory_before) / objects,
        (filling_peak - memory_before) / objects,
        (peak(&pid) - memory_before) / objects,
        nanoseconds(filling_cpu),
        nanoseconds(weir.cpu() - before),
        paging_cpu.as_secs_f64() * 1e6 / (objects / PAGE_OBJECTS as f64),
        listed.longest_read.as_secs_f64() * 1e3,
    ]
}

struct Waited {
    time: Duration,
    longest_read: Duration,
}

/// Waits until a list from the cache has this resourceVersion.
async fn wait_for(connection: &Connection, weir: SocketAddr, version: u64) -> Waited {
    let start = Instant::now();
    let mut longest_read = Duration::ZERO;
    loop {
        let began = Instant::now();
        let list = get(connection, weir, PROTOBUF, LIST_OF_ONE).await;
        let hit = is_hit(&list);
        let body = list.into_body().collect().await.expect("a body").to_bytes();
        longest_read = longest_read.max(began.elapsed());
        if hit && memmem::find(&body, version.to_string().as_bytes()).is_some() {
            return Waited { time: start.elapsed(), longest_read };
        }
        assert!(start.elapsed() < TIMEOUT, "no such list from the cache");
        sleep(READ_INTERVAL).await;
    }
}

async fn read_pages(connection: &Connection, weir: SocketAddr, version: u64, count: usize) {
    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    let (mut query, mut read) = (format!("?limit={PAGE_OBJECTS}&{exact}"), 0);
    loop {
        let path = format!("{COLLECTION}{query}");
        let page = get(connection, weir, PROTOBUF, &path).await;
        assert!(is_hit(&page), "a page comes from the cache");
        let body = page.into_body().collect().await.expect("a body").to_bytes();
        read += memmem::find_iter(&body, b"changed=").count();
        let Some(token) = continue_token(&body) else { break };
        query = format!("?limit={PAGE_OBJECTS}&continue={token}");
    }
    assert_eq!(read, count, "the pages have all objects");
}

/// The continue token of a page: field 3 of its metadata, which comes first in the list.
fn continue_token(body: &Bytes) -> Option<String> {
    // Tokens are base64 of JSON, which begins so.
    let at = memmem::find(body.get(..600.min(body.len()))?, b"eyJ")?;
    let token = body.get(at..)?;
    let length =
        token.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"-_=".contains(byte)));
    Some(String::from_utf8_lossy(token.get(..length?)?).into_owned())
}
