//! By the number of watches of all pods, 250 on a connection: what a whole Weir spends on a delivery, and what it holds for each watch.

use std::time::Duration;

use tokio::time::sleep;

use crate::curve::{Curve, Law, Series};
use crate::stage::{Stage, block_on};

const WATCHES: [usize; 5] = [100, 300, 1_000, 5_000, 20_000];
/// So many deliveries a second, of as many events as it takes: less than one core can do.
const DELIVERIES: usize = 20_000;
/// Of few, what the allocator takes at once says more than they do.
const HELD: [usize; 4] = [1_000, 3_000, 10_000, 20_000];
const FIRST: usize = 2_000;
const TIME: Duration = Duration::from_secs(6);

pub(crate) fn delivery() -> Curve {
    block_on(async {
        let stage = Stage::set().await;
        let mut points = Vec::new();
        for count in WATCHES {
            let watches = stage.watch(count).await;
            let spent = stage.change((DELIVERIES / count).max(1), TIME, &watches).await;
            assert_eq!(spent.deliveries, spent.events * count as f64, "none is lost or doubled");
            points.push((count as f64, spent.cpu_us / spent.deliveries));
            drop(watches);
            sleep(Duration::from_secs(1)).await;
        }
        Curve {
            title: "A delivery to one of many watches",
            x: "watches",
            y: "µs of CPU",
            series: vec![Series::new("a delivery", Some(Law::Constant), points)],
        }
    })
}

/// A Weir of its own for each number, since memory is not always given back.
pub(crate) fn memory() -> Curve {
    block_on(async {
        let mut points = Vec::new();
        for count in HELD {
            let stage = Stage::set().await;
            // The first ones find room in what the first list left.
            let first = stage.watch(FIRST).await;
            sleep(Duration::from_secs(1)).await;
            let before = stage.resident();
            let watches = stage.watch(count).await;
            sleep(Duration::from_secs(1)).await;
            points.push((count as f64, (stage.resident() - before) / count as f64));
            drop((first, watches));
        }
        Curve {
            title: "Memory of an idle watch",
            x: "watches",
            y: "bytes",
            series: vec![Series::new("250 on a connection", Some(Law::Constant), points)],
        }
    })
}
