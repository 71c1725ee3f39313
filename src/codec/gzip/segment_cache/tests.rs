//! Compares compressed lists with the uncompressed ones. The decoder reads exactly one gzip member,
//! as some clients do.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::bufread::GzDecoder;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::json::tests::config_maps;
use crate::list::tests::config_map;
use crate::list::{self, ListMeta};
use crate::object::Object;
use weir_api::media_type::{Encoding, Form, View};
use weir_api::resource_version::ResourceVersion;

fn spliced(form: Form, objects: Vec<Arc<Object>>) -> SplicedList {
    let meta = ListMeta { resource_version: ResourceVersion(100), ..ListMeta::default() };
    list::encode(&config_maps(), form, &meta, objects)
}

/// Returns the gzip member of a list, and the counts of its segments: all, and those that were not
/// in the cache.
fn compressed(segments: &SegmentCache, list: SplicedList) -> (Vec<Bytes>, (usize, usize)) {
    let mut pending = segments.look_up(list);
    let counted = pending.segment_counts();
    segments.complete(&mut pending).unwrap();
    (pending.member().unwrap(), counted)
}

fn decoded(member: &[Bytes]) -> Vec<u8> {
    let member = member.concat();
    let mut decoder = GzDecoder::new(&*member);
    let mut plain = Vec::new();
    decoder.read_to_end(&mut plain).unwrap();
    assert!(decoder.into_inner().is_empty(), "more than one member");
    plain
}

/// Returns a text of `bytes` bytes that compresses about as well as objects do.
fn data(seed: usize, bytes: usize) -> String {
    let word = |n: usize| (seed * 31 + n).wrapping_mul(0x9e37_79b9) % 0xffff;
    let text: String = (0..=bytes / 12).map(|n| format!("key: {:06x};", word(n))).collect();
    text.chars().take(bytes).collect()
}

/// Returns new objects by number. Each call creates other objects, with ids of their own.
fn objects(numbers: impl Iterator<Item = usize>) -> BTreeMap<usize, Arc<Object>> {
    numbers.map(|n| (n, config_map(Encoding::Json, n, &data(n, 1_000)))).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize),
    Delete(usize),
    List { from: usize, every: usize, limit: usize, view: View },
}

fn step() -> impl Strategy<Value = Step> {
    let view = prop_oneof![3 => Just(View::Full), 2 => Just(View::Metadata)];
    let size = prop_oneof![8 => 0..8_000_usize, 1 => 200_000..300_000_usize];
    prop_oneof![
        2 => (0..400_usize, size).prop_map(|(number, bytes)| Step::Put(number, bytes)),
        1 => (0..400_usize).prop_map(Step::Delete),
        3 => (prop_oneof![Just(0), 0..400_usize], 1..4_usize, prop_oneof![Just(500), 0..500_usize], view)
            .prop_map(|(from, every, limit, view)| Step::List { from, every, limit, view }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// This holds whatever lists were compressed before, and for any size of the cache.
    /// `List::every` stands for a selector, `from` and `limit` for a page.
    #[test]
    fn the_decoded_member_is_the_plain_list(
        encoding in prop_oneof![Just(Encoding::Json), Just(Encoding::Protobuf)],
        kept in prop_oneof![Just(0), Just(100_000), Just(usize::MAX)],
        steps in vec(step(), 1..40),
    ) {
        let segments = SegmentCache::new(kept, HeldBytes::new(usize::MAX));
        let put = |number, bytes| config_map(encoding, number, &data(number + bytes, bytes));
        let mut present: BTreeMap<usize, _> = (0..300).map(|n| (n, put(n, n * 7))).collect();
        for step in steps {
            match step {
                Step::Put(number, bytes) => {
                    present.insert(number, put(number, bytes));
                }
                Step::Delete(number) => {
                    present.remove(&number);
                }
                Step::List { from, every, limit, view } => {
                    let selected = present.range(from..).filter(|(number, _)| *number % every == 0);
                    let selected: Vec<_> =
                        selected.take(limit).map(|(_, object)| Arc::clone(object)).collect();
                    let list = spliced(Form { encoding, view, pretty: false }, selected);
                    let (member, _) = compressed(&segments, list.clone());
                    prop_assert_eq!(decoded(&member), list.concat());
                }
            }
        }
    }
}

#[test]
fn a_change_costs_the_segments_around_it() {
    let segments = SegmentCache::new(usize::MAX, HeldBytes::new(usize::MAX));
    let mut present = objects((0..1_500).map(|n| n * 2));
    let list = |present: &BTreeMap<usize, Arc<Object>>| {
        let list = spliced(Form::JSON, present.values().cloned().collect());
        let (member, counted) = compressed(&segments, list.clone());
        assert_eq!(decoded(&member), list.concat());
        counted
    };
    let (total, missing) = list(&present);
    assert!(total >= 8, "{total}");
    assert_eq!(missing, total);
    assert_eq!(list(&present).1, 0);
    for number in [1, 801, 1_501, 2_001, 2_999] {
        present.extend(objects([number].into_iter()));
        let (_, missing) = list(&present);
        // The missing segments: the one with the object, and those whose boundaries it moves.
        assert!((1..=3).contains(&missing), "{missing} for added {number}");
        present.insert(number, config_map(Encoding::Json, number, &data(1, 1_000)));
        assert_eq!(list(&present).1, 1, "for changed {number}");
        present.remove(&number);
        assert!(list(&present).1 <= 3, "for deleted {number}");
    }
}

#[test]
fn lists_share_segments_of_equal_runs() {
    let segments = SegmentCache::new(usize::MAX, HeldBytes::new(usize::MAX));
    let present = objects(0..2_000);
    let part = |range: Range<usize>| {
        spliced(Form::JSON, present.range(range).map(|item| item.1.clone()).collect())
    };
    let (_, (_, missing)) = compressed(&segments, part(0..2_000));
    // A part of the list, such as a namespace or a page.
    let (_, (of_part, missing_of_part)) = compressed(&segments, part(500..1_500));
    assert!(of_part > missing / 3, "{of_part} of {missing}");
    assert!(missing_of_part <= 3, "{missing_of_part}");
    // The metadata-only view shares no segment with whole objects.
    let metadata = Form { view: View::Metadata, ..Form::JSON };
    let (_, (total, missing)) =
        compressed(&segments, spliced(metadata, present.values().cloned().collect()));
    assert_eq!(total, missing);
}

/// Segments are identified by the ids of their objects, not by the objects' bytes.
#[test]
fn segments_are_reused_only_for_identical_objects() {
    let segments = SegmentCache::new(usize::MAX, HeldBytes::new(usize::MAX));
    let one = |n| objects(n..n + 1).into_values().collect();
    assert_eq!(compressed(&segments, spliced(Form::JSON, one(1))).1, (1, 1));
    assert_eq!(compressed(&segments, spliced(Form::JSON, one(1))).1, (1, 1));
}

#[test]
fn a_segment_that_two_lists_need_is_deflated_once() {
    let segments = SegmentCache::new(usize::MAX, HeldBytes::new(usize::MAX));
    let present: Vec<_> = objects(0..500).into_values().collect();
    let pending_lists = [(); 2].map(|()| segments.look_up(spliced(Form::JSON, present.clone())));
    let members = pending_lists.map(|mut pending| {
        assert_eq!(pending.segment_counts().0, pending.segment_counts().1);
        segments.complete(&mut pending).unwrap();
        pending.member().unwrap()
    });
    // The deflated segments. The shorter chunks are the list's head, separators and tail. Equal
    // addresses show that both lists use the same segment.
    let shared = |member: &[Bytes]| -> Vec<_> {
        member.iter().filter(|piece| piece.len() > 1_000).map(|piece| piece.as_ptr()).collect()
    };
    assert!(shared(&members[0]).len() > 2);
    assert_eq!(shared(&members[0]), shared(&members[1]));
}

#[test]
fn the_cache_is_bounded_and_keeps_the_newest() {
    let bytes_max = 200_000;
    let segments = SegmentCache::new(bytes_max, HeldBytes::new(usize::MAX));
    let mut last = Vec::new();
    for start in 0..40 {
        last = objects(start * 1_000..start * 1_000 + 300).into_values().collect();
        compressed(&segments, spliced(Form::JSON, last.clone()));
        let (count, bytes) = segments.totals();
        assert!(count > 0 && bytes <= bytes_max as u64, "{bytes}");
    }
    let pending = segments.look_up(spliced(Form::JSON, last));
    assert_eq!(pending.segment_counts().1, 0);
}

#[test]
fn an_evicted_segment_counts_as_held() {
    let held = HeldBytes::new(usize::MAX);
    // Nothing fits, so that each segment is evicted at once.
    let segments = SegmentCache::new(1, held.clone());
    let hundred_objects: Vec<_> = objects(0..100).into_values().collect();
    let (member, _) = compressed(&segments, spliced(Form::JSON, hundred_objects));
    segments.totals();
    let compressed_bytes: usize = member.iter().map(Bytes::len).sum();
    assert!(held.bytes() > compressed_bytes / 2, "{} of {compressed_bytes}", held.bytes());
}
