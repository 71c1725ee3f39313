//! The ordered map of objects from which a store and its index are built.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use crate::codec::object::Object;

/// Objects by key.
pub(super) type Objects = OrdMap<Arc<str>, Arc<Object>>;

/// Returns the objects of `namespace`, or of all namespaces, whose keys are at or above the bound
/// `low`.
pub(super) fn range<'a>(
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
    let objects = (!is_empty).then(|| objects.range::<_, str>((low, high)));
    objects.into_iter().flatten().map(|(_, object)| object)
}

pub(super) fn is_above(key: &str, low: Bound<&str>) -> bool {
    match low {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
    }
}
