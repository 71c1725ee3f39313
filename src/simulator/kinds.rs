//! The served kinds: a static table of built-in ones, and those that the stored
//! CustomResourceDefinitions add. A [`Registry`] is immutable; a change of a CRD replaces it.

mod built_in;
mod custom;
mod kind;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use self::built_in::built_in;
use self::custom::custom_kinds;

pub(super) use self::kind::{Kind, api_version};

/// All kinds that are served at one time.
#[derive(Debug, Default)]
pub(super) struct Registry {
    kinds: Vec<Arc<Kind>>,
    by_path: HashMap<(String, String, String), Arc<Kind>>,
    groups: Vec<(String, Vec<String>)>,
}

impl Registry {
    /// Builds the registry of the built-in kinds and those of the given CustomResourceDefinitions.
    pub(super) fn new<'a>(definitions: impl Iterator<Item = &'a Value>) -> Self {
        let mut kinds: Vec<Arc<Kind>> = built_in().map(Arc::new).collect();
        kinds.extend(definitions.flat_map(custom_kinds).map(Arc::new));
        let by_path = kinds.iter().map(|kind| {
            let path = (kind.group.clone(), kind.version.clone(), kind.resource.clone());
            (path, Arc::clone(kind))
        });
        Self { by_path: by_path.collect(), groups: groups(&kinds), kinds }
    }

    /// Returns all kinds, in the order of discovery.
    pub(super) fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// Returns the kind at a path.
    pub(super) fn find(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Kind>> {
        let path = (group.to_owned(), version.to_owned(), resource.to_owned());
        self.by_path.get(&path).cloned()
    }

    pub(super) fn find_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let mut kinds = self.kinds.iter();
        kinds
            .find(|candidate| candidate.kind == kind && candidate.api_version() == api_version)
            .cloned()
    }

    /// Returns whether any kind is served under a group and version.
    pub(super) fn has_version(&self, group: &str, version: &str) -> bool {
        self.kinds.iter().any(|kind| kind.group == group && kind.version == version)
    }

    /// Returns the groups with their versions, the preferred one first, in the order of the table.
    /// The core group is `""`.
    pub(super) fn groups(&self) -> &[(String, Vec<String>)] {
        &self.groups
    }
}

fn groups(kinds: &[Arc<Kind>]) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for kind in kinds {
        let group = groups.iter_mut().find(|(group, _)| *group == kind.group);
        match group {
            Some((_, versions)) if versions.contains(&kind.version) => {}
            Some((_, versions)) => versions.push(kind.version.clone()),
            None => groups.push((kind.group.clone(), vec![kind.version.clone()])),
        }
    }
    groups
}
