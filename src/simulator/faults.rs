//! Faults that tests inject: a shared list of them, each by verb and resource and for a number of requests, and the
//! cutting of running watches.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answers 410 `Expired`: as HTTP for a list, as an ERROR event for a watch.
    Gone,
    /// Answers 429 as a cache does that initializes, with so many seconds in `Retry-After`.
    TooManyRequests(u32),
    /// Answers a bare `Status` of this code.
    Status(u16),
    /// Waits before it answers.
    Delay(Duration),
    /// Never answers.
    Hang,
    /// Closes the connection, or resets the stream, without an answer's body.
    Reset,
    /// A watch answers with a line that is not JSON, and goes on.
    Garbage,
    /// A watch sends no bookmarks.
    NoBookmarks,
}

/// A fault and whom it meets.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which verb; `None` for any.
    pub verb: Option<String>,
    /// Which resource; `None` for any, and for paths without one.
    pub resource: Option<String>,
    /// How many requests it meets.
    pub times: u32,
    /// What happens to them.
    pub action: Action,
}

/// How running watches are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The stream ends as at its deadline.
    Clean,
    /// The stream is reset.
    Reset,
    /// Half a frame is sent, then the stream is reset.
    MidFrame,
}

/// The faults of a simulator.
#[derive(Debug)]
pub struct Faults {
    list: Mutex<Vec<Fault>>,
    cuts: broadcast::Sender<(Option<String>, Cut)>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { list: Mutex::default(), cuts: broadcast::Sender::new(CUTS_MAX) }
    }
}

impl Faults {
    /// Adds one for the next `times` requests of a verb and resource; `*` stands for any.
    pub fn add(&self, verb: &str, resource: &str, times: u32, action: Action) {
        let some = |word: &str| (word != "*").then(|| word.to_owned());
        let fault = Fault { verb: some(verb), resource: some(resource), times, action };
        self.list.lock().push(fault);
    }

    /// Removes all that are left.
    pub fn clear(&self) {
        self.list.lock().clear();
    }

    /// Cuts the running watches of a resource, or of all.
    pub fn cut_watches(&self, resource: Option<&str>, cut: Cut) {
        // Without a running watch there is no receiver, and nothing to cut.
        drop(self.cuts.send((resource.map(str::to_owned), cut)));
    }

    /// Takes the faults that meet a request.
    pub(super) fn take(&self, verb: &str, resource: &str) -> Vec<Action> {
        let mut list = self.list.lock();
        let meets = |wanted: &Option<String>, given: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == given)
        };
        let mut taken = Vec::new();
        for fault in list.iter_mut().filter(|fault| fault.times > 0) {
            if meets(&fault.verb, verb) && meets(&fault.resource, resource) {
                fault.times -= 1;
                taken.push(fault.action.clone());
            }
        }
        list.retain(|fault| fault.times > 0);
        taken
    }

    /// The cuts from now on.
    pub(super) fn cuts(&self) -> broadcast::Receiver<(Option<String>, Cut)> {
        self.cuts.subscribe()
    }
}

/// Cuts that a watch may lag behind; tests cut once at a time.
const CUTS_MAX: usize = 64;
