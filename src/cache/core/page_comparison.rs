//! Compares a page that the upstream lists at one resourceVersion with the cache's state there
//! (`docs/decisions/verified-caches.md`).
//!
//! Both are in key order, so that one pass over both finds what is on one side only. The page
//! covers the keys after its start, up to its last object, or to the end of the collection if
//! nothing follows. Pure: it changes nothing, and says nothing about who is wrong.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::state::State;
use crate::codec::object::{Key, Object};

/// A page of a list at the resourceVersion of a state.
#[derive(Clone, Copy, Debug)]
pub struct ExactPage<'a> {
    /// The key after which the page begins; `None` for the first page.
    pub after: Option<&'a Key>,
    /// Its objects.
    pub objects: &'a [Object],
    /// Whether another page follows.
    pub has_more: bool,
    /// Whether it has objects that cannot be read.
    pub has_unreadable: bool,
    /// Whether its objects are whole and have the state's representation, so that their bytes are
    /// compared. Otherwise only their resourceVersions and uids are compared.
    pub is_whole: bool,
}

/// A key whose object is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDifference {
    /// The key.
    pub key: Key,
    /// The resourceVersion of the cache's object; `None` if it has none.
    pub held: Option<ResourceVersion>,
    /// The resourceVersion of the upstream's object; `None` if it has none.
    pub upstream: Option<ResourceVersion>,
}

impl KeyDifference {
    /// Whether both sides have an object of the same resourceVersion: its uid or bytes differ.
    pub fn is_within_version(&self) -> bool {
        self.held == self.upstream
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageComparison {
    /// The number of the page's objects.
    pub objects: usize,
    /// The last key of the page, if another page follows.
    pub through: Option<Key>,
    /// The number of keys that differ.
    pub count: usize,
    /// The first of them, at most [`DIFFERENCES_MAX`].
    pub differences: Vec<KeyDifference>,
}

/// Why a page cannot be compared: the upstream's own damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedPage {
    /// Keys do not ascend, or a key is there twice, or one is not above the start of the page.
    #[error("the keys of a page are not in order")]
    Order,
    /// A page without objects says that another page follows.
    #[error("a page is empty, but not the last one")]
    Empty,
    /// An object is newer than the page.
    #[error("an object is newer than its page")]
    Newer,
}

/// Compares a page with the state of the same resourceVersion.
pub fn compare(state: &State, page: ExactPage<'_>) -> Result<PageComparison, MalformedPage> {
    check(&page, state.resource_version())?;
    let low = page.after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
    let everything = WatchFilter::default();
    if page.has_more && page.objects.is_empty() {
        // All of its objects cannot be read. The next page begins behind the next object.
        let next = state.store().scan_from(&everything, low).next();
        let through = next.map(|object| object.key.clone());
        return Ok(PageComparison { through, ..PageComparison::default() });
    }
    let last = page.objects.last().map(|object| &object.key);
    let through = last.filter(|_| page.has_more);
    let is_covered = |object: &&Arc<Object>| through.is_none_or(|through| object.key <= *through);
    let mut held = state.store().scan_from(&everything, low).take_while(is_covered).peekable();
    let mut listed = page.objects.iter().peekable();
    let through = through.cloned();
    let mut result =
        PageComparison { objects: page.objects.len(), through, ..PageComparison::default() };
    loop {
        let order = match (held.peek(), listed.peek()) {
            (None, None) => return Ok(result),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(held), Some(listed)) => held.key.cmp(&listed.key),
        };
        let held = if order.is_le() { held.next() } else { None };
        let listed = if order.is_ge() { listed.next() } else { None };
        let held = held.map(|object| &**object);
        if !is_same(held, listed, page.is_whole)
            && let Some(key) = held.or(listed).map(|object| &object.key)
            && !(held.is_none() && state.unreadable().may_have(key))
        {
            result.note(key, held, listed);
        }
    }
}

/// Whether two objects of one key are the same, as far as they are compared.
pub fn is_same(held: Option<&Object>, upstream: Option<&Object>, is_whole: bool) -> bool {
    match (held, upstream) {
        (Some(held), Some(upstream)) => {
            let is_same_bytes = !is_whole || held.body() == upstream.body();
            let is_same_version = held.resource_version == upstream.resource_version;
            is_same_version && is_same_bytes && held.uid() == upstream.uid()
        }
        (None, None) => true,
        _ => false,
    }
}

impl PageComparison {
    fn note(&mut self, key: &Key, held: Option<&Object>, upstream: Option<&Object>) {
        self.count += 1;
        if self.differences.len() < DIFFERENCES_MAX {
            let version = |object: &Object| object.resource_version;
            let (held, upstream) = (held.map(version), upstream.map(version));
            self.differences.push(KeyDifference { key: key.clone(), held, upstream });
        }
    }
}

fn check(page: &ExactPage<'_>, at: ResourceVersion) -> Result<(), MalformedPage> {
    if page.has_more && page.objects.is_empty() && !page.has_unreadable {
        return Err(MalformedPage::Empty);
    }
    let mut before = page.after;
    for object in page.objects {
        if before.is_some_and(|before| *before >= object.key) {
            return Err(MalformedPage::Order);
        }
        if object.resource_version > at {
            return Err(MalformedPage::Newer);
        }
        before = Some(&object.key);
    }
    Ok(())
}

/// The most keys of one comparison that are remembered and asked for one by one.
pub const DIFFERENCES_MAX: usize = 8;
