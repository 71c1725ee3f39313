//! The sampled part of the corpus: random combinations. Most requests leave most parameters unset,
//! because nearly every combination is an error.

use fastrand::Rng;

use super::collections::COLLECTIONS;
use super::forms::{ACCEPTS, AGENTS, JSON, PACKINGS, PRETTIES};
use super::read_request::{ReadRequest, Token, Verb, Version, WatchForm};
use super::selectors::{FIELDS, Fields, LABELS, Labels, NO_FIELDS, NO_LABELS};
use super::tables::{IDLE, LIMITS, MATCHES, TOKENS, VERSIONS, WATCH_FORMS};

/// Returns `count` requests of this seed.
pub(crate) fn sample(seed: u64, count: usize) -> Vec<ReadRequest> {
    let mut rng = Rng::with_seed(seed);
    (0..count).map(|_| one(&mut rng)).collect()
}

fn one(rng: &mut Rng) -> ReadRequest {
    let collection = rng.choice(&COLLECTIONS).unwrap();
    let verb = match (rng.u8(..8), rng.choice(collection.names)) {
        (0, _) => Verb::Watch(*rng.choice(&WATCH_FORMS).unwrap()),
        (1, _) => Verb::Watch(WatchForm::Parameter("1")),
        (2, Some(name)) => Verb::Get(name),
        _ => Verb::List,
    };
    let version = match rng.u8(..8) {
        0 => Version::Unset,
        1..4 => Version::Zero,
        4 => Version::Recent,
        5 => Version::Current,
        _ => *rng.choice(&VERSIONS).unwrap(),
    };
    let accept = if rng.bool() { &JSON } else { rng.choice(&ACCEPTS).unwrap() };
    let labels =
        maybe(rng, 3, &NO_LABELS, |rng| -> &'static Labels { rng.choice(&LABELS).unwrap() });
    let fields = maybe(rng, 3, &NO_FIELDS, |rng| -> &'static Fields {
        let field = rng.choice(collection.fields).filter(|_| rng.bool());
        field.unwrap_or_else(|| rng.choice(&FIELDS).unwrap())
    });
    let watch = matches!(verb, Verb::Watch(_));
    let initial = maybe(rng, if watch { 3 } else { 40 }, "", |rng| {
        *rng.choice(&["true", "false", "1"]).unwrap()
    });
    let matched = if watch && !initial.is_empty() && rng.u8(..4) > 0 {
        "NotOlderThan"
    } else {
        maybe(rng, if watch { 12 } else { 4 }, "", |rng| *rng.choice(&MATCHES).unwrap())
    };
    let idle = maybe(rng, 10, "", |rng| *rng.choice(&IDLE).unwrap());
    // The first of two parameters counts, and here it would be the only one.
    let replaced = matches!(version, Version::Unset) && idle.starts_with("resourceVersion");
    ReadRequest {
        matched,
        limit: maybe(rng, 4, "", |rng| *rng.choice(&LIMITS).unwrap()),
        token: maybe(rng, 12, Token::None, |rng| *rng.choice(&TOKENS).unwrap()),
        initial,
        bookmarks: maybe(rng, 2, "", |rng| *rng.choice(&["true", "1", "false"]).unwrap()),
        labels,
        fields,
        accept,
        agent: maybe(rng, 3, "", |rng| *rng.choice(&AGENTS).unwrap()),
        pretty: maybe(rng, 6, "", |rng| *rng.choice(&PRETTIES).unwrap()),
        packing: maybe(rng, 2, "", |rng| *rng.choice(&PACKINGS).unwrap()),
        head: rng.u8(..60) == 0,
        slash: rng.u8(..20) == 0,
        idle: if replaced { "" } else { idle },
        ..ReadRequest::new(verb, collection, version)
    }
}

/// Returns an unusual value once in `one_in`.
fn maybe<T>(rng: &mut Rng, one_in: u8, usual: T, other: impl FnOnce(&mut Rng) -> T) -> T {
    if rng.u8(..one_in) == 0 { other(rng) } else { usual }
}
