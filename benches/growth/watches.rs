//! The cost by the number of watches of all pods, 250 on each connection: CPU time of a Weir
//! process per delivery, and memory per watch.

use std::time::Duration;

use tokio::time::sleep;

use crate::curve::{Curve, Law, Series};
use crate::testbed::{Testbed, block_on};

const WATCHES: [usize; 5] = [100, 300, 1_000, 5_000, 20_000];
/// Deliveries per second, by which the rate of events is chosen. It is less than one core can do.
const DELIVERIES: usize = 20_000;
/// The smallest number is large, because the allocator's granularity would dominate the memory of
/// few watches.
const HELD: [usize; 4] = [1_000, 3_000, 10_000, 20_000];
const FIRST: usize = 2_000;
const TIME: Duration = Duration::from_secs(6);

pub(crate) fn delivery() -> Curve {
    block_on(async {
        let testbed = Testbed::start().await;
        let mut points = Vec::new();
        for count in WATCHES {
            let watches = testbed.watch(count).await;
            let spent = testbed.change((DELIVERIES / count).max(1), TIME, &watches).await;
            assert_eq!(
                spent.deliveries,
                spent.events * count as f64,
                "an event was lost or duplicated"
            );
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

/// Measures memory per idle watch. It starts a new Weir for each number, since the allocator may
/// not return memory.
pub(crate) fn memory() -> Curve {
    block_on(async {
        let mut points = Vec::new();
        for count in HELD {
            let testbed = Testbed::start().await;
            // The first watches reuse memory that the first list has freed, so they are not
            // measured.
            let first = testbed.watch(FIRST).await;
            sleep(Duration::from_secs(1)).await;
            let before = testbed.resident();
            let watches = testbed.watch(count).await;
            sleep(Duration::from_secs(1)).await;
            points.push((count as f64, (testbed.resident() - before) / count as f64));
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
