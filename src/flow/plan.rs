//! All FlowSchemas and priority levels, as a whole that never changes.
//!
//! They are combined as in kube-apiserver (`apf_controller.go`, `digestFlowSchemasLocked`): sorted
//! by precedence and then by name; a schema whose level does not exist is left out; and the
//! mandatory schemas `exempt` and `catch-all`, which accept no other specification, are first and
//! last if they are missing.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;

use crate::candidates::Candidates;
use crate::level::PriorityLevel;
use crate::schema::{EXEMPT, FlowSchema};

/// All FlowSchemas and priority levels.
#[derive(Debug)]
pub struct Plan {
    /// The FlowSchemas in the order of matching.
    schemas: Vec<FlowSchema>,
    levels: HashMap<Arc<str>, PriorityLevel>,
    catch_all: usize,
    /// The candidates that users share, by the policies that name the users.
    pub(super) candidates: Mutex<SharedCandidates>,
}

impl Clone for Plan {
    /// Returns a plan of the same objects, without candidates.
    fn clone(&self) -> Self {
        let Self { schemas, levels, catch_all, candidates: _ } = self;
        let (schemas, levels) = (schemas.clone(), levels.clone());
        Self { schemas, levels, catch_all: *catch_all, candidates: Mutex::default() }
    }
}

/// Candidates by the places of schemas, and of policies in them.
type SharedCandidates = HashMap<Box<[(u32, u32)]>, Arc<Candidates>>;

impl Plan {
    /// Combines objects with distinct names.
    pub fn new(mut schemas: Vec<FlowSchema>, levels: Vec<PriorityLevel>) -> Self {
        let mut levels: HashMap<_, _> =
            levels.into_iter().map(|level| (Arc::clone(&level.name), level)).collect();
        schemas.retain(|schema| levels.contains_key(&schema.level));
        schemas.sort_by(|one, two| (one.precedence, &one.name).cmp(&(two.precedence, &two.name)));
        for mandatory in flow_schemas() {
            if !schemas.iter().any(|schema| schema.name == mandatory.name) {
                match &*mandatory.name {
                    EXEMPT => schemas.insert(0, mandatory),
                    CATCH_ALL => schemas.push(mandatory),
                    _ => {}
                }
            }
        }
        for mandatory in priority_levels() {
            if matches!(&*mandatory.name, EXEMPT | CATCH_ALL) {
                levels.entry(Arc::clone(&mandatory.name)).or_insert(mandatory);
            }
        }
        let catch_all = schemas.iter().position(|schema| &*schema.name == CATCH_ALL);
        let catch_all = catch_all.unwrap_or(schemas.len().saturating_sub(1));
        Self { schemas, levels, catch_all, candidates: Mutex::default() }
    }

    /// Returns the plan of kube-apiserver's own objects.
    pub fn built_in() -> Self {
        Self::new(flow_schemas(), priority_levels())
    }

    /// Returns a level by its name.
    pub fn level_named(&self, name: &str) -> Option<&PriorityLevel> {
        self.levels.get(name)
    }

    /// Returns the schemas in the order of matching.
    pub fn schemas(&self) -> &[FlowSchema] {
        &self.schemas
    }

    /// Returns the level of a schema.
    pub fn level(&self, schema: &FlowSchema) -> Option<&PriorityLevel> {
        self.levels.get(&schema.level)
    }

    /// Returns all levels, in no order.
    pub fn levels(&self) -> impl Iterator<Item = &PriorityLevel> {
        self.levels.values()
    }

    /// Returns the sum of all levels' shares.
    pub fn shares(&self) -> u64 {
        self.levels.values().map(|level| u64::from(level.shares)).sum()
    }

    /// Returns the place of the schema for requests that no schema matches.
    pub(super) fn catch_all(&self) -> usize {
        self.catch_all
    }
}

/// Returns the FlowSchemas that kube-apiserver 1.36 creates by itself
/// (`pkg/apis/flowcontrol/bootstrap`).
pub(super) fn flow_schemas() -> Vec<FlowSchema> {
    let objects = parse(include_str!("built_in/flow_schemas.json"));
    objects.iter().filter_map(|object| FlowSchema::parse(object.get().as_bytes()).ok()).collect()
}

/// Returns the priority levels that it creates.
pub(super) fn priority_levels() -> Vec<PriorityLevel> {
    let objects = parse(include_str!("built_in/priority_levels.json"));
    objects.iter().filter_map(|object| PriorityLevel::parse(object.get().as_bytes()).ok()).collect()
}

fn parse(objects: &str) -> Vec<Box<RawValue>> {
    serde_json::from_str(objects).unwrap_or_default()
}

/// The schema that matches what no other one does.
const CATCH_ALL: &str = "catch-all";
