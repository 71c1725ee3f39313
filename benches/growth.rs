//! Measures how cost grows with objects, watchers, namespaces and the rate of events. Run `cargo
//! bench --bench growth`.
//!
//! Each series has a law, and the bench fails if its figures grow faster. The figures are CPU time,
//! so that other work on the machine adds little: of threads of this process for the parts, and of
//! a Weir process in front of a simulator for the rest. `-- NAME...` measures only the curves whose
//! names contain one of these words.

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
#[path = "growth/filtered.rs"]
mod filtered;
#[path = "growth/frames.rs"]
mod frames;
#[path = "growth/ingest.rs"]
mod ingest;
#[path = "support/lists.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod lists;
#[path = "growth/memory.rs"]
mod memory;
#[path = "growth/mesh.rs"]
mod mesh;
#[path = "growth/millions.rs"]
mod millions;
#[path = "growth/namespaces.rs"]
mod namespaces;
#[path = "growth/objects.rs"]
mod objects;
#[path = "support/pods.rs"]
mod pods;
#[path = "growth/rates.rs"]
mod rates;
#[path = "growth/readers.rs"]
mod readers;
#[path = "growth/shards.rs"]
mod shards;
#[path = "growth/source.rs"]
mod source;
#[path = "growth/starts.rs"]
mod starts;
#[path = "growth/testbed.rs"]
mod testbed;
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

use crate::curve::Curve;

type Measure = fn() -> Curve;

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [role, count] = arguments.as_slice()
        && role == memory::ROLE
    {
        memory::print_memory_per_object(count.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    let curves: [(&str, Measure); 17] = [
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
        ("shards", shards::grow),
        ("filtered", filtered::grow),
        ("ingest", ingest::cost),
        ("ingest-lag", ingest::lag),
        ("millions", millions::grow),
        ("starts", starts::grow),
        ("mesh", mesh::grow),
    ];
    let mut holds = true;
    for (name, measure) in curves {
        if arguments.is_empty() || arguments.iter().any(|argument| name.contains(argument.as_str()))
        {
            holds &= measure().report(name);
        }
    }
    if holds {
        ExitCode::SUCCESS
    } else {
        println!("\nat least one series grows faster than its law");
        ExitCode::FAILURE
    }
}
