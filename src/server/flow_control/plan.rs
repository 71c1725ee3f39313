//! A plan with the metrics of its FlowSchemas.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

use crate::flow::plan::Plan;
use crate::flow::seats::{self, LIST_SEATS_MAX};
use crate::server::flow_control::metrics::{ClassMetrics, FlowMetrics};

/// A plan in use.
#[derive(Debug)]
pub(super) struct ActivePlan {
    /// Different for each plan of this process.
    pub(super) number: u64,
    pub(super) plan: Plan,
    /// The classes of the plan's schemas, in the same order.
    pub(super) classes: Vec<Arc<Class>>,
    /// The class of requests whose user is unknown.
    pub(super) unidentified: Arc<Class>,
}

/// What requests of one FlowSchema have in common.
#[derive(Debug)]
pub(super) struct Class {
    /// The name of the schema; `None` for requests whose user is unknown.
    pub(super) schema: Option<Arc<str>>,
    /// The name of the level.
    pub(super) level: Arc<str>,
    /// The uids of the schema and the level, as kube-apiserver's headers; none of what is built in.
    pub(super) uids: [Option<HeaderValue>; 2],
    /// The most seats of one list.
    pub(super) seats_max: u64,
    pub(super) metrics: ClassMetrics,
}

impl ActivePlan {
    /// Resolves the metrics of all schemas.
    pub(super) fn new(plan: Plan, metrics: &FlowMetrics) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let classes = plan.schemas().iter().map(|schema| {
            Arc::new(Class {
                schema: Some(Arc::clone(&schema.name)),
                level: Arc::clone(&schema.level),
                uids: [Some(&schema.uid), plan.level(schema).map(|level| &level.uid)].map(uid),
                seats_max: seats::seats_max(&plan, schema),
                metrics: metrics.class(&schema.name, &schema.level),
            })
        });
        let classes = classes.collect();
        let unidentified = Arc::new(Class {
            schema: None,
            level: UNIDENTIFIED.into(),
            uids: [None, None],
            seats_max: LIST_SEATS_MAX,
            metrics: metrics.class(UNIDENTIFIED, UNIDENTIFIED),
        });
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), plan, classes, unidentified }
    }

    /// Returns the labels of all classes: schema and level.
    pub(super) fn labels(&self) -> impl Iterator<Item = [&str; 2]> {
        self.classes
            .iter()
            .chain([&self.unidentified])
            .map(|class| [class.schema.as_deref().unwrap_or(UNIDENTIFIED), &*class.level])
    }
}

fn uid(uid: Option<&Arc<str>>) -> Option<HeaderValue> {
    HeaderValue::from_str(uid.filter(|uid| !uid.is_empty())?).ok()
}

/// The labels of requests whose user is unknown.
pub(super) const UNIDENTIFIED: &str = "unidentified";
