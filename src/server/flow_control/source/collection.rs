//! The valid objects of one resource, by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::codec::object::Object;
use crate::flow::level::PriorityLevel;
use crate::flow::schema::{FlowSchema, InvalidObject};

/// An object that is parsed from JSON.
pub(super) trait Configured: Clone {
    /// The number of objects that are used.
    const COUNT_MAX: usize;

    fn parse(json: &[u8]) -> Result<Self, InvalidObject>;
}

impl Configured for FlowSchema {
    const COUNT_MAX: usize = 1_000;

    fn parse(json: &[u8]) -> Result<Self, InvalidObject> {
        Self::parse(json)
    }
}

impl Configured for PriorityLevel {
    const COUNT_MAX: usize = 256;

    fn parse(json: &[u8]) -> Result<Self, InvalidObject> {
        Self::parse(json)
    }
}

/// The objects of one resource.
pub(super) struct Collection<T> {
    valid: BTreeMap<Box<str>, T>,
    /// The objects whose last version is not used.
    invalid: BTreeSet<Box<str>>,
}

impl<T> Default for Collection<T> {
    fn default() -> Self {
        Self { valid: BTreeMap::new(), invalid: BTreeSet::new() }
    }
}

impl<T: Configured> Collection<T> {
    /// Returns the last valid version of each object.
    pub(super) fn valid(&self) -> Vec<T> {
        self.valid.values().cloned().collect()
    }

    /// Returns the number of objects whose last version is not used.
    pub(super) fn invalid(&self) -> usize {
        self.invalid.len()
    }

    /// Replaces all objects.
    pub(super) fn replace<'a>(&mut self, objects: impl Iterator<Item = &'a Object>) {
        let before = std::mem::take(self);
        for object in objects {
            let name = object.key.name();
            if let Some((name, earlier)) = before.valid.get_key_value(name) {
                self.valid.insert(name.clone(), earlier.clone());
            }
            self.put(object);
        }
    }

    /// Adds or replaces an object.
    pub(super) fn put(&mut self, object: &Object) {
        let name = object.key.name();
        let is_known = self.valid.contains_key(name);
        let parsed = match T::parse(&object.body) {
            Ok(_) if !is_known && self.valid.len() >= T::COUNT_MAX => {
                Err("there are too many".to_owned())
            }
            Ok(parsed) => Ok(parsed),
            Err(error) => Err(error.to_string()),
        };
        match parsed {
            Ok(parsed) => {
                self.invalid.remove(name);
                self.valid.insert(name.into(), parsed);
            }
            Err(error) => {
                tracing::warn!(name, error, "an object of priority and fairness is not used");
                self.invalid.insert(name.into());
            }
        }
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, object: &Object) {
        let name = object.key.name();
        self.valid.remove(name);
        self.invalid.remove(name);
    }
}
