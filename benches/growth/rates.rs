//! The cost by the rate of events, for a Weir process with ten watches of all pods: CPU time per
//! event, and its lag.

use std::time::Duration;

use crate::curve::{Curve, Law, Series, percentile};
use crate::testbed::{Testbed, block_on};

const RATES: [usize; 6] = [1, 10, 100, 500, 2_000, 5_000];
const WATCHES: usize = 10;
/// The number of events to aim for, within the limits of [`SECONDS`].
const EVENTS: usize = 500;
const SECONDS: (usize, usize) = (5, 20);

pub(crate) fn cost() -> Curve {
    block_on(async {
        let testbed = Testbed::start().await;
        let watches = testbed.watch(WATCHES).await;
        let (mut event, mut delivery, mut lag) = (Vec::new(), Vec::new(), Vec::new());
        for rate in RATES {
            let seconds = (EVENTS / rate).clamp(SECONDS.0, SECONDS.1);
            let time = Duration::from_secs(seconds as u64);
            let spent = testbed.change(rate, time, &watches).await;
            // The actual rate, which is lower on a busy machine.
            let rate = spent.events / seconds as f64;
            assert_eq!(
                spent.deliveries,
                spent.events * WATCHES as f64,
                "an event was lost or duplicated"
            );
            event.push((rate, spent.cpu_us / spent.events));
            delivery.push((rate, spent.cpu_us / spent.deliveries));
            lag.push((rate, percentile(&spent.lags, 99)));
        }
        Curve {
            title: "Events at a rate, ten watches of all pods",
            x: "events a second",
            y: "µs of CPU, or ms",
            series: vec![
                Series::new("an event, with its ten deliveries, µs", Some(Law::Constant), event),
                Series::new("a delivery, µs", Some(Law::Constant), delivery),
                Series::new("p99 from the write to the client, ms", None, lag),
            ],
        }
    })
}
