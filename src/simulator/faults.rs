//! Injected faults of tests: a shared list of them, each for a verb, a resource and a number of
//! requests, and the cutting of running watches.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast;

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answers 410 `Expired`: a list gets it as the HTTP status, a watch as an ERROR event.
    Gone,
    /// Answers 429 as a cache does that initializes, with the given seconds in `Retry-After`.
    TooManyRequests(u32),
    /// Answers 429 as priority and fairness does that finds no seats, with the given seconds in
    /// `Retry-After`.
    Refuse(u32),
    /// Answers a `Status` that has only this code.
    Status(u16),
    /// Delays the response, which shows the state after that.
    Delay(Duration),
    /// Delays the response, which shows the state before that.
    DelayAnswer(Duration),
    /// Never answers.
    Hang,
    /// Closes the connection, or resets the stream, without a response body.
    Reset,
    /// A watch sends a line that is not JSON, and continues.
    Garbage,
    /// Replaces the first text by the second, of the same length, in the response body.
    Alter(String, String),
    /// Answers, and ends the connection after its running requests: GOAWAY in HTTP/2.
    EndConnection,
}

/// A fault, and the requests that it applies to.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The verb; `None` for any.
    pub verb: Option<String>,
    /// The resource; `None` for any, and for paths without one.
    pub resource: Option<String>,
    /// The number of requests that it applies to.
    pub times: u32,
    /// The effect on them.
    pub action: Action,
}

/// The way in which running watches are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The stream ends as at its time-out.
    Clean,
    /// The stream is reset.
    Reset,
    /// Half a frame is sent, then the stream is reset.
    MidFrame,
}

/// Silent damage to one object, which no request shows as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A watch does not send the object's next event.
    LostEvent,
    /// A watch sends the object's next event twice in a row.
    DoubledEvent,
    /// A watch sends the object's next event after the one that follows it.
    LateEvent,
    /// A watch sends the object's next state as it was before, under the new resourceVersion. A
    /// deleted object is there again.
    OldBody,
    /// A watch sends the object's next state in another namespace, `elsewhere`.
    OtherNamespace,
    /// The watch caches do not have the object; etcd does.
    Hidden,
}

/// The damage to an object.
#[derive(Debug)]
struct DamagedObject {
    resource: String,
    key: String,
    damage: Damage,
}

/// The faults of a simulator.
#[derive(Debug)]
pub struct Faults {
    list: Mutex<Vec<Fault>>,
    damage: Mutex<Vec<DamagedObject>>,
    cuts: broadcast::Sender<(Option<String>, Cut)>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            list: Mutex::default(),
            damage: Mutex::default(),
            cuts: broadcast::Sender::new(CUTS_MAX),
        }
    }
}

impl Faults {
    /// Adds a fault for the next `times` requests of a verb and a resource; `*` means any.
    pub fn add(&self, verb: &str, resource: &str, times: u32, action: Action) {
        let some = |word: &str| (word != "*").then(|| word.to_owned());
        let fault = Fault { verb: some(verb), resource: some(resource), times, action };
        self.list.lock().push(fault);
    }

    /// Removes all remaining faults.
    pub fn clear(&self) {
        self.list.lock().clear();
        self.damage.lock().clear();
    }

    /// Damages an object of a resource. Its key is `namespace/name`, or the name alone.
    pub fn damage(&self, resource: &str, key: &str, damage: Damage) {
        let (resource, key) = (resource.to_owned(), key.to_owned());
        self.damage.lock().push(DamagedObject { resource, key, damage });
    }

    /// Returns the damage to the next event of an object, which it counts as done.
    pub(super) fn take_damage(&self, resource: &str, key: &str) -> Option<Damage> {
        let mut damage = self.damage.lock();
        let is_next = |object: &DamagedObject| {
            object.resource == resource && object.key == key && object.damage != Damage::Hidden
        };
        let index = damage.iter().position(is_next)?;
        Some(damage.remove(index).damage)
    }

    /// Returns the keys of the objects of a resource that the watch caches lack.
    pub(super) fn hidden(&self, resource: &str) -> Vec<String> {
        let damage = self.damage.lock();
        let is_hidden = |object: &&DamagedObject| {
            object.resource == resource && object.damage == Damage::Hidden
        };
        damage.iter().filter(is_hidden).map(|object| object.key.clone()).collect()
    }

    /// Cuts the running watches of a resource, or of all resources.
    pub fn cut_watches(&self, resource: Option<&str>, cut: Cut) {
        // Without a running watch there is no receiver.
        drop(self.cuts.send((resource.map(str::to_owned), cut)));
    }

    /// Returns the faults that apply to a request, and counts them down.
    pub(super) fn take(&self, verb: &str, resource: &str) -> Vec<Action> {
        let mut list = self.list.lock();
        let matches = |wanted: &Option<String>, given: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == given)
        };
        let mut actions = Vec::new();
        for fault in list.iter_mut().filter(|fault| fault.times > 0) {
            if matches(&fault.verb, verb) && matches(&fault.resource, resource) {
                fault.times -= 1;
                actions.push(fault.action.clone());
            }
        }
        list.retain(|fault| fault.times > 0);
        actions
    }

    /// Returns a receiver of all later cuts.
    pub(super) fn cuts(&self) -> broadcast::Receiver<(Option<String>, Cut)> {
        self.cuts.subscribe()
    }
}

/// The capacity of the channel of cuts. Tests cut once at a time.
const CUTS_MAX: usize = 64;
