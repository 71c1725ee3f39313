//! The families that a test's thread has registered. A registry shows a family only once it has a
//! series.

use std::any::type_name;
use std::cell::RefCell;

use prometheus::core::Collector;

/// A registered family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) labels: Vec<String>,
    pub(crate) help: String,
}

thread_local! {
    static FAMILIES: RefCell<Vec<Family>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn note<C: Collector>(collector: &C) {
    let is_histogram = type_name::<C>().contains("Histogram");
    let families = collector.desc().into_iter().map(|desc| Family {
        name: desc.fq_name.clone(),
        kind: match desc.fq_name.ends_with("_total") {
            _ if is_histogram => "histogram",
            true => "counter",
            false => "gauge",
        },
        labels: desc.variable_labels.clone(),
        help: desc.help.clone(),
    });
    FAMILIES.with_borrow_mut(|catalogue| catalogue.extend(families));
}

/// Returns the families by name.
pub(crate) fn families() -> Vec<Family> {
    let mut families = FAMILIES.take();
    families.sort();
    families
}
