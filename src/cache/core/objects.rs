//! The ordered map of objects from which a store and its index are built.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use crate::cache::core::visible::VisibleObjects;
use crate::codec::object::{Key, Object};

/// Objects by key.
pub(super) type Objects = OrdMap<Key, Arc<Object>>;

/// Returns the `visible` objects of `namespace`, or of all namespaces, whose keys are at or above
/// the bound `low`. `None` is for all.
pub(super) fn range<'a>(
    objects: &'a Objects,
    namespace: Option<&str>,
    visible: Option<&Arc<VisibleObjects>>,
    low: Bound<&str>,
) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
    let is_whole = visible
        .is_none_or(|visible| namespace.is_some_and(|namespace| visible.has_namespace(namespace)));
    let whole = is_whole.then(|| range_of(objects, namespace, low));
    let visible = visible.filter(|_| namespace.is_none());
    // On the heap: an iterator of a tree is large, and moving four more took most of a short list.
    let parts = visible.map(|visible| Box::new(parts(objects, Arc::clone(visible), low)));
    whole.into_iter().flatten().chain(parts.into_iter().flatten())
}

/// Returns the objects of all namespaces that are visible.
fn parts<'a>(
    objects: &'a Objects,
    visible: Arc<VisibleObjects>,
    low: Bound<&str>,
) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
    let low = low.map(str::to_owned);
    let first = match &low {
        Bound::Included(low) | Bound::Excluded(low) => visible.first_from(low),
        Bound::Unbounded => 0,
    };
    let mut numbers = first..;
    let parts = std::iter::from_fn(move || {
        let part = visible.part(numbers.next()?)?;
        let low = low.as_ref().map(String::as_str);
        let (namespace, named) = match part.strip_suffix('/') {
            Some(namespace) => (Some(range_of(objects, Some(namespace), low)), None),
            None => (None, objects.get(part.as_bytes()).filter(|_| is_above(part, low))),
        };
        Some(namespace.into_iter().flatten().chain(named))
    });
    parts.flatten()
}

fn range_of<'a>(
    objects: &'a Objects,
    namespace: Option<&str>,
    low: Bound<&str>,
) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
    // `0` is the byte after `/`, so these bounds contain exactly the keys that start with
    // `namespace/`.
    let ends = namespace.map(|namespace| (format!("{namespace}/"), format!("{namespace}0")));
    let (first, high) = match &ends {
        Some((first, high)) => (first.as_str(), Bound::Excluded(high.as_str())),
        None => ("", Bound::Unbounded),
    };
    let low = if is_above(first, low) { Bound::Included(first) } else { low };
    // `OrdMap::range` must not be called with an inverted range.
    let is_empty = match (low, high) {
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
        _ => false,
    };
    let objects = (!is_empty)
        .then(|| objects.range::<_, [u8]>((low.map(str::as_bytes), high.map(str::as_bytes))));
    objects.into_iter().flatten().map(|(_, object)| object)
}

pub(super) fn is_above(key: &str, low: Bound<&str>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
    }
}
