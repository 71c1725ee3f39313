//! Runs Weir's lock-free parts in the orders in which their threads can interleave, with loom: the
//! marks of a watcher, its wake-up, and the deferred waker of a connection. The simulation has one
//! thread, and never shows such an order.
//!
//! `build.rs` copies the parts, and puts loom's atomics in place of std's. Each test stands for a
//! sentence of `src/cache/core/cursor.rs` or `src/streams/deferred_waker.rs`. A lost wake-up is a
//! deadlock, which loom reports. For each order that matters there is a test with the other order,
//! which loom must find to be wrong.
//!
//! `cargo test --manifest-path tests/interleavings/Cargo.toml` takes some seconds after the build.

#![cfg(test)]

use std::process::Command;

mod atomic_waker;
mod deferred_wakers;
mod watchers;

/// Weir's own code, as `build.rs` copies it.
mod parts {
    #[expect(dead_code, reason = "a test uses a part of it")]
    pub(crate) mod deferred_waker {
        use crate::atomic_waker::AtomicWaker;

        include!(concat!(env!("OUT_DIR"), "/deferred_waker.rs"));
    }

    pub(crate) mod marks {
        include!(concat!(env!("OUT_DIR"), "/marks.rs"));
    }

    pub(crate) mod wake_slot {
        include!(concat!(env!("OUT_DIR"), "/wake_slot.rs"));
    }
}

/// Runs a model in every order with at most [`PREEMPTIONS_MAX`] switches away from a thread that
/// could go on. A switch where a thread waits does not count.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(run);
}

/// Runs a model that is wrong, in a process of its own, since loom ends the process when it finds a
/// deadlock. `name` is the test that calls this.
fn must_fail(name: &str, model: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return model();
    }
    let program = std::env::current_exe().expect("a test has a path");
    let child = Command::new(program).args(["--exact", name]).env(CHILD, "1").output();
    let child = child.expect("the test starts again");
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(said.contains("running 1 test"), "{name} is not the name of the test");
    assert!(!child.status.success(), "loom found nothing wrong");
}

/// Most defects of this kind need one or two. Without a bound some models take minutes.
const PREEMPTIONS_MAX: usize = 3;
/// Set in the process that runs a wrong model.
const CHILD: &str = "WEIR_WRONG_MODEL";
