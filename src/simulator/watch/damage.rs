//! The events that are sent in place of a damaged one. Pure.

use std::sync::Arc;

use crate::faults::Damage;
use crate::kinds::Kind;
use crate::object::Object;
use crate::store::Event;

/// Returns the events that are sent in place of one, and the one that is sent after the next.
pub(super) fn apply(
    kind: &Kind,
    event: Event,
    damage: Option<Damage>,
) -> (Vec<Event>, Option<Event>) {
    match damage {
        None | Some(Damage::Hidden) => (vec![event], None),
        Some(Damage::LostEvent) => (Vec::new(), None),
        Some(Damage::DoubledEvent) => (vec![event.clone(), event], None),
        Some(Damage::LateEvent) => (Vec::new(), Some(event)),
        Some(Damage::OldBody) => (vec![with_old_body(kind, event)], None),
        Some(Damage::OtherNamespace) => (vec![elsewhere(kind, event)], None),
    }
}

fn with_old_body(kind: &Kind, event: Event) -> Event {
    let before = event.old.as_ref().map(|old| Arc::new(old.at(kind, event.revision)));
    Event { new: before.or(event.new), ..event }
}

fn elsewhere(kind: &Kind, event: Event) -> Event {
    let moved = event.new.map(|object| {
        let mut value = object.value();
        if let Some(namespace) = value.pointer_mut("/metadata/namespace") {
            *namespace = "elsewhere".into();
        }
        Arc::new(Object::new(kind, event.revision, value))
    });
    Event { new: moved, ..event }
}
