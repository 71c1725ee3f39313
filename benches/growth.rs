//! How cost grows: with objects, with watchers, with namespaces, with the rate of events. `cargo bench --bench growth`, and then
//! `python3 benches/plot.py` for the plots.
//!
//! Each curve has a law, and the bench fails where what was measured grows faster. CPU time is counted, in this process for the parts and of a
//! whole Weir before a simulator for the rest, so that other work on the machine adds little. `-- NAME...` takes only the curves whose
//! names contain one of these; the others stay in the file as they were.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "support/caches.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod caches;
#[path = "growth/client.rs"]
mod client;
#[path = "support/cpu.rs"]
mod cpu;
#[path = "growth/curve.rs"]
mod curve;
#[path = "growth/events.rs"]
mod events;
#[path = "support/lists.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod lists;
#[path = "growth/memory.rs"]
mod memory;
#[path = "growth/namespaces.rs"]
mod namespaces;
#[path = "growth/objects.rs"]
mod objects;
#[path = "support/pods.rs"]
mod pods;
#[path = "growth/rates.rs"]
mod rates;
#[path = "growth/stage.rs"]
mod stage;
#[path = "growth/timing.rs"]
mod timing;
#[path = "growth/upstream.rs"]
mod upstream;
#[path = "growth/watches.rs"]
mod watches;
#[path = "support/weir_process.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod weir_process;

use std::process::ExitCode;

use crate::curve::{Curve, Results};

type Measure = fn() -> Curve;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    if let [role, count] = words.as_slice()
        && role == memory::ROLE
    {
        memory::tell(count.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    let curves: [(&str, Measure); 10] = [
        ("update", objects::update),
        ("read", objects::read),
        ("list", objects::list),
        ("event-existing", events::existing),
        ("event-wanting", events::wanting),
        ("namespaces", namespaces::grow),
        ("memory-object", memory::grow),
        ("rate", rates::cost),
        ("watch-delivery", watches::delivery),
        ("watch-memory", watches::memory),
    ];
    let mut results = Results::read();
    let mut holds = true;
    for (name, measure) in curves {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            let curve = measure();
            holds &= curve.report(name);
            results.set(name, &curve);
            results.write();
        }
    }
    if holds {
        ExitCode::SUCCESS
    } else {
        println!("\nsomething grows faster than its law");
        ExitCode::FAILURE
    }
}
