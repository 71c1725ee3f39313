//! The counters of TCP, of the whole machine.

use std::collections::HashMap;
use std::fs;

/// The counters of `/proc/net/netstat` and `/proc/net/snmp`.
pub(crate) struct TcpCounters(HashMap<String, u64>);

impl TcpCounters {
    pub(crate) fn read() -> Self {
        let mut counters = HashMap::new();
        for file in ["/proc/net/netstat", "/proc/net/snmp"] {
            let text = fs::read_to_string(file).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.chunks_exact(2) {
                if let [names, values] = pair {
                    let pairs = names.split(' ').zip(values.split(' '));
                    let parsed = pairs
                        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
                    counters.extend(parsed);
                }
            }
        }
        Self(counters)
    }

    /// Returns what was added since `before` of the counters that say that segments were dropped or
    /// sent again, as text.
    pub(crate) fn since(&self, before: &Self) -> String {
        let difference = |name: &str| {
            let at = |counters: &Self| counters.0.get(name).copied().unwrap_or(0);
            format!("{} {name}", at(self).saturating_sub(at(before)))
        };
        COUNTERS.map(difference).join(", ")
    }
}

const COUNTERS: [&str; 8] = [
    "OutSegs",
    "RetransSegs",
    "TCPTimeouts",
    "TCPLossProbes",
    "TCPRcvQDrop",
    "TCPBacklogDrop",
    "PruneCalled",
    "TCPMemoryPressures",
];
