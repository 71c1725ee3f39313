//! WR: a write is processed once.

use serde_json::Value;

use super::Checker;
use crate::caller::Answer;
use crate::resources::{Resource, Selection};
use crate::write_log::Moment;

impl Checker {
    /// Checks the answer to a creation that was sent at `begun`: "already exists" must not mean the
    /// object of this very request. Each object has a text of its own.
    pub(crate) fn created(
        &self,
        begun: Moment,
        resource: &'static Resource,
        (key, object): (&str, &Value),
        answer: &Answer,
    ) {
        let mut inner = self.0.lock();
        inner.checked("WR");
        if answer.status != 409 {
            return;
        }
        let now = inner.write_log.now();
        let state = inner
            .write_log
            .epoch(now.epoch)
            .state(&Selection::every_object(resource), now.revision);
        let is_own = state.iter().find(|version| *version.key == *key).is_some_and(|version| {
            let written: Value = serde_json::from_slice(&version.json).unwrap_or_default();
            version.revision > begun.revision && text(&written) == text(object)
        });
        if is_own {
            inner.violated("WR", format!("the creation of {key} was processed twice"));
        }
    }
}

/// Returns the text that no other written object has.
fn text(object: &Value) -> Option<&Value> {
    let places = ["/data/text", "/spec/color", "/spec/containers/0/env/0/value"];
    places.into_iter().find_map(|place| object.pointer(place))
}
