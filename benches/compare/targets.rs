//! The targets for Weir, by row: a ratio to the upstream, a ratio to a lower bound, or an absolute
//! figure.
//!
//! The lower bound of a read is nginx if the command line names one, otherwise the floor, which
//! does less and is lower. The lower bound of watches is always the floor. There are no targets
//! relative to the simulator, which is no kube-apiserver.

use crate::reads::{WATCH_LIST, WATCH_LIST_GZIP};
use crate::results::Results;
use crate::server::{FLOOR, NGINX, UPSTREAM, WEIR};
use crate::table::Line;
use crate::{forwarded, lag, sync};

/// Reads: the least ratio of the upstream's CPU time to Weir's, and the largest ratio of Weir's to
/// the lower bound's.
const READS: [(&str, Option<f64>, Option<f64>); 10] = [
    ("get", Some(6.0), Some(2.5)),
    ("get-protobuf", None, None),
    ("list-node-protobuf", Some(7.0), Some(1.5)),
    ("list-500", Some(9.0), Some(1.3)),
    ("list-5000", Some(9.0), Some(1.3)),
    ("list-5000-protobuf", Some(7.0), Some(1.3)),
    ("list-5000-gzip", Some(75.0), Some(2.0)),
    ("list-label-protobuf", Some(6.0), None),
    (WATCH_LIST, None, None),
    (WATCH_LIST_GZIP, None, None),
];

/// A compressed watch that begins with the state: the largest CPU time and the most bytes, as
/// parts of an uncompressed one's.
const COMPRESSED: (f64, f64) = (1.3, 0.2);

/// Watches: the least ratio of Weir's deliveries per CPU second to the upstream's. The ratio to the
/// floor's must be at least 1.
const WATCHES: [(&str, f64); 3] =
    [("watch", 3.6), ("watch-protobuf", 3.6), ("watch-own-connection", 2.5)];

/// Kilobytes per watch.
const MEMORY: [(&str, f64); 4] = [
    ("watch-memory", 12.0),
    ("watch-memory-own-connection", 45.0),
    ("watch-memory-http1", 30.0),
    ("watch-held", 12.0),
];

const BY_NODE: [&str; 2] = ["watch-by-node", "watch-by-node-few"];
/// Microseconds of CPU time for an event, and for each of its deliveries in addition.
const BY_NODE_EVENT: f64 = 150.0;
const BY_NODE_DELIVERY: f64 = 25.0;

/// The largest ratio of the time of a first sync to the upstream's transfer time.
const SYNC: f64 = 1.1;
/// The memory of an object: a factor for its bytes, and a constant number of bytes.
const OBJECT: (f64, f64) = (1.3, 200.0);

/// The largest added latency of a forwarded request, in microseconds.
const FORWARDED: [(&str, f64); 2] = [("p50_us", 100.0), ("p99_us", 300.0)];

/// Consistent lists: the largest CPU time of the API server and Weir, as a part of forwarding's,
/// and the most lists that the API server gets in a second.
const CONSISTENT: [(&str, Option<f64>, Option<f64>); 4] = [
    ("consistent-5000", Some(0.1), None),
    ("consistent-5000-quiet", None, None),
    ("consistent-50", None, Some(50.0)),
    ("consistent-50-busy", None, None),
];

/// Returns all measured figures as lines of the table.
pub(crate) fn lines(results: &Results, simulated: bool) -> Vec<Line> {
    let evaluation = Evaluation { results, simulated };
    let mut lines = Vec::new();
    for (row, less, within) in READS {
        lines.extend(evaluation.read(row, less, within));
    }
    lines.push(evaluation.compressed());
    for (row, more) in WATCHES {
        lines.extend(evaluation.watch(row, more));
    }
    lines.extend(BY_NODE.map(|row| evaluation.by_node(row)));
    lines.extend(evaluation.lag());
    lines.extend(MEMORY.map(|(row, most)| evaluation.memory(row, most)));
    lines.push(evaluation.held());
    for row in &sync::ROWS {
        lines.extend(evaluation.sync(row.name));
    }
    lines.extend(CONSISTENT.map(|(row, cpu, lists)| evaluation.consistent(row, cpu, lists)));
    lines.extend(FORWARDED.map(|(name, most)| evaluation.forwarded(name, most)));
    lines
}

struct Evaluation<'a> {
    results: &'a Results,
    simulated: bool,
}

impl Evaluation<'_> {
    fn get(&self, row: &str, server: &str, name: &str) -> Option<f64> {
        self.results.get(row, server, name)
    }

    fn line(&self, row: &str, title: &str, name: &str) -> Line {
        Line::new(row, title, |server| self.get(row, server, name))
    }

    fn several(&self, row: &str, title: &str, names: &[&str]) -> Line {
        let values = |server| names.iter().filter_map(|name| self.get(row, server, name)).collect();
        Line::with_several(row, title, values)
    }

    /// Returns a target relative to the upstream, or `None` if the upstream is the simulator.
    fn upstreams(&self, allowed: f64) -> Option<f64> {
        (!self.simulated).then_some(allowed)
    }

    fn read(&self, row: &str, less: Option<f64>, within: Option<f64>) -> Vec<Line> {
        let times = |numerator, to| self.results.ratio(row, "cpu_ms", numerator, to);
        // nginx also has features that the floor lacks (paths, headers of files, a disabled log),
        // so it replaces the floor as the lower bound.
        let of_floor = within.filter(|_| times(WEIR, NGINX).is_none());
        let cpu = self
            .line(row, "CPU ms per request", "cpu_ms")
            .at_least(
                "times less than the upstream",
                times(UPSTREAM, WEIR),
                less.and_then(|figure| self.upstreams(figure)),
            )
            .at_most("times the floor", times(WEIR, FLOOR), of_floor)
            .at_most("times nginx", times(WEIR, NGINX), within);
        vec![
            cpu,
            self.several(row, "requests per second, p50 ms, p99 ms", &["rate", "p50_ms", "p99_ms"]),
        ]
    }

    /// Returns the line of compressed watches, beside uncompressed ones.
    fn compressed(&self) -> Line {
        let part = |name| {
            let of_weir = |row| self.get(row, WEIR, name);
            Some(of_weir(WATCH_LIST_GZIP)? / of_weir(WATCH_LIST)?)
        };
        self.line(WATCH_LIST_GZIP, "bytes", "bytes")
            .at_most("of the CPU time of an uncompressed one", part("cpu_ms"), Some(COMPRESSED.0))
            .at_most("of its bytes", part("bytes"), Some(COMPRESSED.1))
    }

    /// Returns deliveries per CPU second. The CPU time of the upstream is reduced by the cost of
    /// the same changes while Weir's watches were measured.
    fn per_second(&self, row: &str, server: &str) -> Option<f64> {
        let cpu = self.get(row, server, "cpu_s")?;
        let writes = if server == UPSTREAM { self.get(row, WEIR, "upstream_cpu_s") } else { None };
        Some(self.get(row, server, "deliveries")? / (cpu - writes.unwrap_or(0.0)))
    }

    fn watch(&self, row: &str, more: f64) -> Vec<Line> {
        let rate = |server| self.per_second(row, server);
        let times = |to| Some(rate(WEIR)? / rate(to)?);
        let deliveries = Line::new(row, "deliveries per CPU second", rate)
            .at_least("times the upstream's", times(UPSTREAM), self.upstreams(more))
            .at_least("times the floor's", times(FLOOR), Some(1.0));
        vec![deliveries, self.several(row, "lag p50 ms, p99 ms", &["lag_p50_ms", "lag_p99_ms"])]
    }

    fn by_node(&self, row: &str) -> Line {
        let each =
            |server, name| Some(self.get(row, server, name)? / self.get(row, server, "events")?);
        let writes = each(WEIR, "upstream_cpu_s");
        let cost = |server| {
            let writes = if server == UPSTREAM { writes? } else { 0.0 };
            Some((each(server, "cpu_s")? - writes) * 1e6)
        };
        let deliveries = each(WEIR, "deliveries");
        let allowed = deliveries.map(|count| BY_NODE_EVENT + BY_NODE_DELIVERY * count);
        let title = format!("CPU us per event, for {:.1} watches each", deliveries.unwrap_or(0.0));
        Line::new(row, &title, cost).at_most("us per event", cost(WEIR), allowed)
    }

    fn lag(&self) -> Vec<Line> {
        let row = lag::ROW;
        let allowed = lag::allowed(self.results, WEIR);
        vec![
            self.several(
                row,
                "changes per second, added lag p50 ms",
                &["rate", "added_lag_p50_ms"],
            ),
            self.several(
                row,
                "ms per event: CPU, threads waiting for a processor",
                &["event_cpu_ms", "event_waited_ms"],
            ),
            self.line(row, "added lag p99 ms", "added_lag_p99_ms").at_most(
                "ms",
                self.get(row, WEIR, "added_lag_p99_ms"),
                allowed,
            ),
        ]
    }

    /// Returns the CPU time for a list of the API server and of Weir, when Weir answers.
    fn consistent(&self, row: &str, cpu: Option<f64>, lists: Option<f64>) -> Line {
        let both = |setting: &str| {
            let figure = |server| self.get(row, server, &format!("{setting}_cpu_ms"));
            Some(figure(UPSTREAM)? + figure(WEIR)?)
        };
        let ratio = both("auto").zip(both("forward")).map(|(auto, forward)| auto / forward);
        self.line(row, "CPU ms per list, answered by Weir", "auto_cpu_ms")
            .at_most("of forwarding's CPU", ratio, cpu.and_then(|figure| self.upstreams(figure)))
            .at_most(
                "lists a second at the upstream",
                self.get(row, UPSTREAM, "auto_lists_per_s"),
                lists.and_then(|figure| self.upstreams(figure)),
            )
    }

    fn memory(&self, row: &str, most: f64) -> Line {
        let each =
            |server| self.get(row, server, "memory_per_watch_bytes").map(|figure| figure / 1e3);
        Line::new(row, "memory, KB per watch", each).at_most("KB", each(WEIR), Some(most))
    }

    /// Returns the line of many watches, which must all receive every event.
    fn held(&self) -> Line {
        let missing = self.get("watch-held", WEIR, "missing");
        self.line("watch-held", "watches", "watches").at_most(
            "missing deliveries",
            missing,
            Some(0.0),
        )
    }

    fn sync(&self, row: &str) -> Vec<Line> {
        let allowed = self.get(row, UPSTREAM, "sync_s").map(|figure| figure * SYNC);
        let seconds = self.get(row, WEIR, "sync_s");
        let bytes = self.get(row, UPSTREAM, "object_bytes");
        let memory = self.get(row, WEIR, "memory_per_object_bytes");
        vec![
            self.line(row, "s", "sync_s").at_most(
                "s",
                seconds,
                allowed.and_then(|figure| self.upstreams(figure)),
            ),
            Line::new(row, "bytes per object, memory in Weir", |server| match server {
                UPSTREAM => bytes,
                WEIR => memory,
                _ => None,
            })
            .at_most("bytes", memory, bytes.map(|bytes| bytes * OBJECT.0 + OBJECT.1)),
        ]
    }

    fn forwarded(&self, name: &str, most: f64) -> Line {
        let at = |server| self.get(forwarded::ROW, server, name);
        let added = at(WEIR).zip(at(UPSTREAM)).map(|(weir, upstream)| weir - upstream);
        self.line(forwarded::ROW, name, name).at_most("us more", added, Some(most))
    }
}
