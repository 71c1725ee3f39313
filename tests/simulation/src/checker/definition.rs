//! D1: the bytes of a definition. A changed definition adds another default to every object, under
//! the same resourceVersion.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Checker;
use crate::caller::Answer;
use crate::resources::DEFAULTED;

#[derive(Deserialize)]
struct Items<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

impl Checker {
    /// Checks that all objects of a cache's list are in the bytes of one definition. Those that
    /// were written under earlier ones have their defaults, too.
    pub(crate) fn one_definition(&self, path: &str, answer: &Answer) {
        let Some(items) = items(&answer.whole) else { return };
        self.checked("D1");
        let of_all =
            items.iter().map(|item| defaults(item.get())).reduce(|common, one| common & one);
        if of_all == Some(0) {
            self.violated("D1", &format!("{path}: in the bytes of two definitions"));
        }
    }

    /// Checks that a cache and an API server show the same objects in the same bytes.
    pub(crate) fn same_bytes(&self, path: &str, cached: &Answer, upstream: &Answer) {
        self.checked("D1");
        let text = |answer: &Answer| -> Option<Vec<String>> {
            Some(items(&answer.whole)?.iter().map(|item| item.get().to_owned()).collect())
        };
        if text(cached) != text(upstream) {
            self.violated("D1", &format!("{path}: not the bytes of the API servers"));
        }
    }
}

fn items(list: &[u8]) -> Option<Vec<&RawValue>> {
    Some(serde_json::from_slice::<Items<'_>>(list).ok()?.items)
}

/// Returns the defaults that an object has, as a set of bits.
fn defaults(item: &str) -> u32 {
    let number = |(at, name): (usize, &str)| item.as_bytes().get(at + name.len()).copied();
    let numbers = item.match_indices(DEFAULTED).filter_map(number);
    numbers.fold(0, |bits, number| bits | 1 << (number & 31))
}
