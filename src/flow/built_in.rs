//! The objects that kube-apiserver 1.36 creates by itself (`pkg/apis/flowcontrol/bootstrap`), for
//! clusters in which Weir may not read them.

use serde_json::value::RawValue;

use crate::level::PriorityLevel;
use crate::schema::FlowSchema;

/// Returns the FlowSchemas.
pub fn flow_schemas() -> Vec<FlowSchema> {
    let objects = parse(include_str!("built_in/flow_schemas.json"));
    objects.iter().filter_map(|object| FlowSchema::parse(object.get().as_bytes()).ok()).collect()
}

/// Returns the priority levels.
pub fn priority_levels() -> Vec<PriorityLevel> {
    let objects = parse(include_str!("built_in/priority_levels.json"));
    objects.iter().filter_map(|object| PriorityLevel::parse(object.get().as_bytes()).ok()).collect()
}

fn parse(objects: &str) -> Vec<Box<RawValue>> {
    serde_json::from_str(objects).unwrap_or_default()
}
