//! Encodes and compresses lists as the server does. No other file of the benches uses these
//! interfaces.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use weir::api::media_type::Form;
use weir::codec::gzip::segment_cache::SegmentCache;
use weir::codec::held_bytes::HeldBytes;
use weir::codec::list::{self, ListMeta, SplicedList};
use weir::codec::object::Object;

use crate::pods::{Pods, resource_version};

pub(crate) fn encode(pods: &Pods, objects: Vec<Arc<Object>>) -> SplicedList {
    let form = Form { encoding: pods.representation.encoding(), ..Form::JSON };
    let meta = ListMeta { resource_version: resource_version(0), ..ListMeta::default() };
    list::encode(&pods.resource, form, &meta, objects)
}

/// Consumes a list chunk by chunk, as a connection does, and returns its length.
pub(crate) fn consume(list: SplicedList) -> usize {
    let mut length = 0;
    for mut piece in list {
        while piece.has_remaining() {
            let some = piece.chunk().len();
            length += some;
            piece.advance(some);
        }
    }
    length
}

/// Compresses a list without cached segments.
pub(crate) fn compress(list: SplicedList) -> Vec<Bytes> {
    compress_from(&SegmentCache::new(0, HeldBytes::new(usize::MAX)), list)
}

/// Compresses a list and uses the cached segments.
pub(crate) fn compress_from(segments: &SegmentCache, list: SplicedList) -> Vec<Bytes> {
    let mut pending = segments.look_up(list);
    segments.complete(&mut pending).expect("compression succeeds");
    pending.member().expect("all segments are compressed")
}

/// Returns the first `count` pods as a cache holds them.
pub(crate) fn shared(pods: &Pods, count: usize) -> Vec<Arc<Object>> {
    pods.objects(count).into_iter().map(Arc::new).collect()
}
