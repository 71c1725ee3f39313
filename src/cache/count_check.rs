//! Compares the number of objects of a cache with the number that each probe brings.
//!
//! A probe is a list of one object, whose metadata says how many objects follow. So each probe
//! shows, at no cost, how many objects the collection had at the probe's resourceVersion
//! (`docs/decisions/verified-caches.md`). The cache knows its own number at any resourceVersion
//! that its history reaches. A creation or deletion that was lost on the way makes the two differ.
//!
//! A probe is usually ahead of the cache. Its number waits until the cache has come that far. Only
//! the newest one waits.
//!
//! One difference proves nothing about who is wrong, and a cache is not changed because of it. A
//! difference that a second probe confirms at another resourceVersion is reported once, until a
//! later probe finds none.
//!
//! Lock order: the waiting number, then that of the cache's writer.

use parking_lot::Mutex;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::snapshot::Snapshot;
use crate::cache::core::watch_cache::{CacheReader, State};
use crate::cache::key::CacheKey;
use crate::cache::metrics::CacheSeries;
use crate::cache::reflector::writer::Writer;
use crate::cache::verification::findings::CheckFindings;
use crate::codec::list::ListPage;

/// The comparisons of one cache.
#[derive(Debug, Default)]
pub(crate) struct CountCheck {
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// The newest number that the cache has not reached yet.
    waiting: Option<Observation>,
    /// The resourceVersion of the last difference, if the last comparison found one.
    different_at: Option<ResourceVersion>,
    is_reported: bool,
}

/// The number of objects at a resourceVersion, as the upstream has it.
#[derive(Clone, Copy, Debug)]
struct Observation {
    at: ResourceVersion,
    objects: u64,
    /// The generation of the upstream's history.
    generation: u64,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Equal,
    Different {
        held: u64,
    },
    /// The history does not reach back to the resourceVersion.
    Unknown,
}

/// The parts of a cache that a comparison uses.
pub(crate) struct CountedCache<'a> {
    pub(crate) key: &'a CacheKey,
    pub(crate) writer: &'a Writer,
    pub(crate) series: &'a CacheSeries,
    pub(crate) findings: &'a CheckFindings,
}

impl CountCheck {
    /// Notes the response to a probe that was sent in `generation`, and compares it once the cache
    /// has reached its resourceVersion.
    pub(crate) fn observe(&self, cache: &CountedCache<'_>, generation: u64, probed: &ListPage) {
        let Some(objects) = probed.total() else { return };
        let new = Observation { at: probed.resource_version, objects, generation };
        let mut progress = self.progress.lock();
        progress.settle(cache);
        if progress.waiting.is_none_or(|waiting| waiting.at < new.at) {
            progress.waiting = Some(new);
        }
        progress.settle(cache);
    }

    /// Compares the number that waits, if the cache has reached its resourceVersion.
    pub(crate) fn settle(&self, cache: &CountedCache<'_>) {
        self.progress.lock().settle(cache);
    }
}

impl Progress {
    fn settle(&mut self, cache: &CountedCache<'_>) {
        let Some(waiting) = self.waiting else { return };
        let held = cache.writer.read_in(waiting.generation, CacheReader::state).flatten();
        let Some(state) = held else {
            self.waiting = None;
            return;
        };
        if state.resource_version() < waiting.at {
            return;
        }
        self.waiting = None;
        match compare(&state, waiting) {
            Outcome::Unknown => cache.series.checked("count", "skipped"),
            Outcome::Equal => {
                cache.series.checked("count", "equal");
                self.different_at = None;
                self.is_reported = false;
            }
            Outcome::Different { held } => {
                cache.series.checked("count", "different");
                cache.findings.suspect();
                let before = self.different_at.replace(waiting.at);
                if before.is_some_and(|before| before != waiting.at) && !self.is_reported {
                    self.is_reported = true;
                    report(cache.key, waiting, held);
                }
            }
        }
    }
}

fn compare(state: &State, observed: Observation) -> Outcome {
    if state.unreadable().any_changed_after(observed.at) {
        return Outcome::Unknown;
    }
    let Some(snapshot) = Snapshot::at(state, observed.at) else { return Outcome::Unknown };
    let held = (snapshot.len() + state.unreadable().len()) as u64;
    if held == observed.objects { Outcome::Equal } else { Outcome::Different { held } }
}

fn report(key: &CacheKey, observed: Observation, held: u64) {
    tracing::error!(
        resource = %key.gvr,
        namespace = key.namespace(),
        resource_version = %observed.at,
        held,
        upstream = observed.objects,
        "the cache and the API server have different numbers of objects; compare the lists of each API server with etcd"
    );
}
