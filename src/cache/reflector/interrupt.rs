//! The interrupts of an open watch of a reflector.

use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::cache::cached_resource::reflector_requests::ReflectorRequests;

/// A reason to interrupt a watch.
pub(super) enum Interrupt {
    /// The upstream's history was rewound.
    Rewound,
    /// A new list was requested, because the upstream may write the same objects in other bytes
    /// now.
    Relist,
    /// A check of the history was requested.
    Verify,
    /// The definition changed, and the bytes are due to be verified once more.
    VerifyBytes,
    /// The watch is open past its own time-out: its connection is dead.
    Overdue,
}

/// Waits for the first reason to interrupt a watch.
pub(super) async fn next_interrupt(
    requests: &ReflectorRequests,
    mut generation: Receiver<u64>,
    deadline: Instant,
    byte_check: Option<Instant>,
) -> Interrupt {
    tokio::select! {
        biased;
        _ = generation.changed() => Interrupt::Rewound,
        () = requests.relist.notified() => Interrupt::Relist,
        () = requests.verify.notified() => Interrupt::Verify,
        () = sleep_until(byte_check.unwrap_or(deadline)), if byte_check.is_some() => Interrupt::VerifyBytes,
        () = sleep_until(deadline) => Interrupt::Overdue,
    }
}
