//! The decisions about a sibling's list against a naive API server.

use proptest::prelude::*;

use super::*;
use crate::api::seed::CODEC_VERSION;
use crate::cache::seed::digest::digest;
use crate::codec::json;
use crate::codec::json::tests::config_maps;
use crate::codec::object::Key;
use crate::config::siblings::{COMPARED_BYTES, COMPARED_OBJECTS};

const AT: ResourceVersion = ResourceVersion(10_000);

/// An object with some bytes of content.
fn object(number: usize, resource_version: u64, text: &str) -> Object {
    let body = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"cm-{number:05}","namespace":"ns","uid":"u{number}","resourceVersion":"{resource_version}"}},"data":{{"of":"{text}"}}}}"#
    );
    json::object(body.as_bytes(), &config_maps()).unwrap()
}

fn collection(count: usize, bytes: usize) -> Vec<Object> {
    let text = "x".repeat(bytes);
    (0..count).map(|number| object(number, 5 + number as u64, &text)).collect()
}

fn manifest(objects: &[Object]) -> SeedManifest {
    SeedManifest {
        codec: CODEC_VERSION,
        cluster: "c".to_owned(),
        release: "v1.36.2".to_owned(),
        definition: 0,
        generation: 0,
        objects: objects.len() as u64,
        digest: digest(objects),
    }
}

/// Answers as an API server that has these objects.
fn page(objects: &[Object], request: &ExactRequest) -> ListPage {
    let ExactPart::Page { after, limit } = &request.part else { panic!("a page") };
    let is_after = |object: &&Object| after.as_ref().is_none_or(|after| object.key > *after);
    let all: Vec<_> = objects.iter().filter(is_after).cloned().collect();
    let limit = *limit as usize;
    let rest = all.len().saturating_sub(limit);
    ListPage {
        unreadable: Vec::new(),
        resource_version: request.at,
        continue_token: if rest > 0 { "more".to_owned() } else { String::new() },
        remaining_item_count: (rest > 0).then_some(rest as u64),
        objects: all.into_iter().take(limit).collect(),
    }
}

fn is_proved(seed: &[Object], upstream: &[Object], place: usize) -> bool {
    let parts = parts(seed, AT, ComparedPart::default(), |places| place % places);
    parts.iter().all(|part| agrees(seed, part, &page(upstream, part)))
}

fn check(objects: &[Object], manifest: &SeedManifest) -> Result<(), NotSeeded> {
    check_list(objects, AT, &digest(objects), manifest)
}

#[test]
fn only_the_list_that_the_sibling_stores_is_taken() {
    let objects = collection(5, 10);
    check(&objects, &manifest(&objects)).unwrap();
    check(&[], &manifest(&[])).unwrap();
    let mut altered = collection(5, 10);
    altered[2] = object(2, 7, "other");
    assert!(matches!(check(&altered, &manifest(&objects)), Err(NotSeeded::Damaged(_))));
    assert!(matches!(check(&objects[1..], &manifest(&objects)), Err(NotSeeded::Damaged(_))));
    let twice = [objects[0].clone(), objects[0].clone()];
    assert!(matches!(check(&twice, &manifest(&twice)), Err(NotSeeded::Damaged(_))));
    let newer = [object(1, AT.0 + 1, "x")];
    assert!(matches!(check(&newer, &manifest(&newer)), Err(NotSeeded::Damaged(_))));
    let none = check_list(&[], ResourceVersion(0), &digest(&[]), &manifest(&[]));
    assert!(matches!(none, Err(NotSeeded::Damaged(_))));
}

#[test]
fn the_pages_are_small_whatever_the_collection() {
    for (count, bytes) in [(0, 0), (1, 10), (1, 1 << 20), (499, 10), (500, 4000), (20_000, 100)] {
        let objects = collection(count, bytes);
        for place in [0, 1, count / 2, count] {
            let parts =
                parts(&objects, AT, ComparedPart::default(), |places| place.min(places - 1));
            assert!((1..=2).contains(&parts.len()));
            let mut weight = 0;
            for part in &parts {
                let page = page(&objects, part);
                assert!(page.objects.len() <= COMPARED_OBJECTS);
                if part.is_whole {
                    weight = page.objects.iter().skip(1).map(Object::weight).sum();
                }
            }
            assert!(weight <= COMPARED_BYTES, "{weight}");
        }
    }
}

#[test]
fn a_page_without_a_count_proves_nothing() {
    let objects = collection(1000, 100);
    for part in parts(&objects, AT, ComparedPart::default(), |_| 3) {
        let page = page(&objects, &part);
        assert!(agrees(&objects, &part, &page));
        assert!(!agrees(&objects, &part, &ListPage { remaining_item_count: None, ..page }));
    }
}

/// A change of the sibling's list.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Missing,
    Additional,
    Older,
    OtherUid,
    OtherBytes,
}

fn damage(objects: &mut Vec<Object>, wrong: Wrong, number: usize) {
    let Object { resource_version, key, .. } = objects[number].clone();
    let of = |resource_version: u64, uid: &str, text: &str| {
        let body = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{}","namespace":"ns","uid":"{uid}","resourceVersion":"{resource_version}"}},"data":{{"of":"{text}"}}}}"#,
            key.name()
        );
        json::object(body.as_bytes(), &config_maps()).unwrap()
    };
    let uid = format!("u{number}");
    match wrong {
        Wrong::Missing => drop(objects.remove(number)),
        Wrong::Additional => {
            let mut added = object(number, 5, "x");
            added.key = Key::new("ns", &format!("{}-more", key.name()));
            objects.insert(number + 1, added);
        }
        Wrong::Older => objects[number] = of(resource_version.0 - 1, &uid, "x"),
        Wrong::OtherUid => objects[number] = of(resource_version.0, "other", "x"),
        Wrong::OtherBytes => objects[number] = of(resource_version.0, &uid, "altered"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A right list is always proved.
    #[test]
    fn a_right_list_agrees(count in 0_usize..1200, bytes in 0_usize..300, place: usize) {
        let objects = collection(count, bytes);
        prop_assert!(is_proved(&objects, &objects, place));
    }

    /// A lack alone, or a surplus, shows in the numbers, wherever it is.
    #[test]
    fn a_list_that_is_not_complete_disagrees(
        count in 1_usize..1200,
        bytes in 0_usize..300,
        at: prop::sample::Index,
        place: usize,
        is_missing: bool,
    ) {
        let upstream = collection(count, bytes);
        let mut seed = collection(count, bytes);
        let wrong = if is_missing { Wrong::Missing } else { Wrong::Additional };
        damage(&mut seed, wrong, at.index(count));
        prop_assert!(!is_proved(&seed, &upstream, place));
    }

    /// In a collection that fits on the pages, every other fault shows as well.
    #[test]
    fn a_small_list_with_a_wrong_object_disagrees(
        count in 1_usize..50,
        at: prop::sample::Index,
        place: usize,
        wrong in prop::sample::select(vec![Wrong::Older, Wrong::OtherUid, Wrong::OtherBytes]),
    ) {
        let upstream = collection(count, 100);
        let mut seed = collection(count, 100);
        damage(&mut seed, wrong, at.index(count));
        prop_assert!(!is_proved(&seed, &upstream, place));
    }

    /// Up to five hundred objects, each wrong resourceVersion shows.
    #[test]
    fn an_old_object_of_a_page_disagrees(
        count in 1_usize..500,
        at: prop::sample::Index,
        place: usize,
    ) {
        let upstream = collection(count, 2000);
        let mut seed = collection(count, 2000);
        damage(&mut seed, Wrong::Older, at.index(count));
        prop_assert!(!is_proved(&seed, &upstream, place));
    }
}

/// The number of objects does not show it in a larger one.
#[test]
fn a_missing_object_and_one_too_many_are_seen_in_a_small_collection() {
    let upstream = collection(COMPARED_OBJECTS, 1000);
    for place in [0, 1, COMPARED_OBJECTS / 2, COMPARED_OBJECTS - 1] {
        let mut seed = upstream.clone();
        seed.remove(place);
        seed.push(object(COMPARED_OBJECTS, 7, "x"));
        assert!(!is_proved(&seed, &upstream, 0), "{place}");
    }
}
