//! GETs that a cache answers, added up on their connection before they are charged.
//!
//! To classify a GET and to add its cost takes some 2,000 instructions, 4 % of what the whole GET
//! takes. So the first one of a [`Pattern`] is classified, and those that are alike are only added
//! to its sums: requests of one sender, user agent, resource and namespace, which have one class,
//! flow and origin. Nothing is a sample. [`hit_charges`](super::hit_charges) adds and charges them.
//!
//! Lock order: the patterns of a connection, or the list of connections, neither while the other is
//! held; both within a sweep ([`hit_charges`](super::hit_charges)).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::resource::ApiResource;
use crate::flow::costs::Origin;
use crate::server::flow_control::last_gets::LastGets;
use crate::server::flow_control::plan::Class;
use crate::server::flow_control::requester::Requester;

/// The hits of a connection that are not charged yet, by what they have in common.
#[derive(Default)]
pub(super) struct UnchargedHits(pub(super) Mutex<Patterns>);

/// The patterns of a connection.
#[derive(Default)]
pub(super) struct Patterns {
    pub(super) patterns: Vec<Pattern>,
    /// Whether the list of connections has this one.
    pub(super) is_listed: bool,
}

/// Hits that are alike.
pub(super) struct Pattern {
    pub(super) alike: Alike,
    pub(super) class: Arc<Class>,
    /// The first sum is of objects that were not read just before, the second one of the others.
    pub(super) sums: [Sum; 2],
    pub(super) gets: LastGets,
    /// How often its sums were charged.
    pub(super) age: u8,
    /// Whether it got hits since.
    pub(super) is_used: bool,
}

/// The properties that hits share if they are charged together.
pub(super) struct Alike {
    /// The number of the plan.
    pub(super) plan: u64,
    pub(super) sender: Requester,
    pub(super) agent: Option<HeaderValue>,
    /// As discovery described it: the same one until discovery changes.
    pub(super) resource: Arc<ApiResource>,
    pub(super) namespace: Arc<str>,
}

/// The sum of hits, and to whom it is charged.
pub(super) struct Sum {
    pub(super) origin: Arc<Origin>,
    /// Stands for the origin.
    pub(super) hash: u64,
    pub(super) hits: Hits,
}

/// Hits that are charged together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hits {
    pub(super) requests: u64,
    /// The bytes of their bodies.
    pub(super) bytes: u64,
    /// For how long Weir worked for them.
    pub(super) busy: Duration,
}

/// The connections with sums, and since when they have some. The oldest comes first.
#[derive(Default)]
pub(super) struct UnchargedList(pub(super) Mutex<VecDeque<(Instant, Arc<UnchargedHits>)>>);

impl Pattern {
    /// Adds a GET of an object, which arrived at `now`.
    pub(super) fn add(&mut self, object: u64, now: Instant, hit: Hits) {
        self.class.metrics.add_hit(hit.bytes);
        self.is_used = true;
        let [once, again] = &mut self.sums;
        let sum = if self.gets.is_read_again(object, now) { again } else { once };
        sum.hits.requests += hit.requests;
        sum.hits.bytes += hit.bytes;
        sum.hits.busy += hit.busy;
    }
}
