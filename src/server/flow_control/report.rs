//! The heaviest clients as JSON, for operators. It names users, so that only the admin listener's
//! rule for details may give it away.

use serde_json::{Map, Value};

use crate::flow::cost::Cost;
use crate::flow::costs::{Dimension, Key, Window};
use crate::flow::hitters::Counter;
use crate::server::flow_control::FlowControl;

impl FlowControl {
    /// Returns the windows of the report, with at most `limit` clients in each list.
    pub fn report(&self, limit: usize) -> Value {
        self.flush();
        let mut costs = self.costs.lock();
        let now = self.started.elapsed();
        costs.decay(now);
        let windows = costs.windows().iter();
        let windows: Vec<_> =
            windows.map(|window| describe(window, window.seconds(now), limit)).collect();
        windows.into()
    }
}

fn describe(window: &Window, seconds: f64, limit: usize) -> Value {
    let mut described = Map::new();
    described.insert("seconds".to_owned(), window.length().as_secs().into());
    described.insert("all".to_owned(), rates(window.total(), seconds).into());
    for dimension in Dimension::ALL {
        let summary = window.summary(dimension);
        let total = summary.total().max(f64::MIN_POSITIVE);
        let clients = summary.heaviest().into_iter().take(limit);
        let clients: Vec<_> = clients.map(|counter| client(counter, total, seconds)).collect();
        described.insert(dimension.as_str().to_owned(), clients.into());
    }
    described.into()
}

fn client(counter: &Counter<Key>, total: f64, seconds: f64) -> Value {
    let fields =
        counter.key.iter().map(|(name, value)| ((*name).to_owned(), Value::from(&**value)));
    let mut described: Map<_, _> = fields.collect();
    described.insert("share".to_owned(), rounded(counter.weight / total));
    described.insert("shareErrorMax".to_owned(), rounded(counter.error / total));
    described.extend(rates(&counter.cost, seconds));
    described.into()
}

fn rates(cost: &Cost, seconds: f64) -> Map<String, Value> {
    let Cost { requests, forwarded, refused, bytes, seat_seconds, cpu_seconds, .. } = *cost;
    let rates = [
        ("requestsPerSecond", requests),
        ("forwardedPerSecond", forwarded),
        ("refusedPerSecond", refused),
        ("bytesPerSecond", bytes),
        ("upstreamSeats", seat_seconds),
        ("cpuCores", cpu_seconds),
    ];
    rates.into_iter().map(|(name, sum)| (name.to_owned(), rounded(sum / seconds))).collect()
}

/// Rounds to four significant digits, which is more than the estimates are worth.
fn rounded(number: f64) -> Value {
    let text = format!("{number:.3e}");
    text.parse::<f64>().map_or(Value::Null, Value::from)
}
