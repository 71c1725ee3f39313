//! The pieces of a list, with what they keep in memory until the list has been sent.
//!
//! A list holds references to objects, which count by their own size. The objects are shared, but a
//! client that reads slowly may be all that keeps old ones: [`StateLag`] bounds that.

use std::sync::Arc;

use crate::cache::core::watch_cache::StateLag;
use crate::codec::held_bytes::{Claim, HeldBytes};
use crate::codec::list::{Pieces, SplicedList};
use crate::codec::object::Object;
use crate::codec::rope::Rope;
use crate::server::metrics::ResourceMetrics;
use crate::upstream::pool::BodyError;

/// A list that is spliced while it is sent.
#[derive(Debug)]
pub(crate) struct ListBody {
    pieces: Pieces,
    lag: StateLag,
    metrics: Arc<ResourceMetrics>,
    _references: Claim,
}

impl ListBody {
    /// Creates the body of a list of a state. Its copied bytes and its references count as held.
    pub(crate) fn new(
        list: SplicedList,
        lag: StateLag,
        held: &HeldBytes,
        metrics: Arc<ResourceMetrics>,
    ) -> Self {
        let references = held.state_account().claim(size_of_val::<[Arc<Object>]>(list.objects()));
        let pieces = list.into_iter().held_by(held.clone());
        Self { pieces, lag, metrics, _references: references }
    }

    /// Returns the number of bytes that were not returned yet.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether all bytes were returned.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

impl Iterator for ListBody {
    type Item = Result<Rope, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.pieces.is_empty() && self.lag.is_exceeded() {
            self.metrics.list_outrun();
            return Some(Err(BodyError::Outrun));
        }
        self.pieces.next().map(Ok)
    }
}
