//! Lists and reads of one object: L0, LN, LC, LX, LP, G0, GN, GC; E1 where one shows what is lost.

use super::page::{Form, Item, Page};
use super::{Checker, Inner};
use crate::caller::Answer;
use crate::resources::Selection;
use crate::write_log::{Epoch, Moment, Version};

/// The request of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAt {
    /// `resourceVersion=0`.
    Any,
    /// `resourceVersion=N`.
    NotOlderThan(u64),
    /// `resourceVersion=N&resourceVersionMatch=Exact`.
    Exactly(u64),
    /// No resourceVersion.
    Latest,
}

/// A read that a client has sent.
pub(crate) struct ReadOperation {
    pub(crate) target: String,
    pub(crate) selection: Selection,
    pub(crate) read_at: ReadAt,
    pub(crate) form: Form,
    /// The moment at which it was sent.
    pub(crate) begun: Moment,
    /// The revision that the target's cache had shown by then.
    pub(crate) floor: u64,
}

/// The pages of a list so far.
#[derive(Default)]
pub(crate) struct Walk {
    /// The resourceVersion of all pages, and the epoch, once they are known.
    revision: Option<u64>,
    /// The number of objects on the pages before.
    offset: usize,
}

/// The metadata of a list.
pub(crate) struct ListInfo {
    pub(crate) revision: u64,
    pub(crate) token: String,
    /// The epoch that it shows.
    pub(crate) epoch: usize,
}

impl Checker {
    /// Checks one page of a list, which may be the only one. Returns its metadata, or `None` if it
    /// cannot be used.
    pub(crate) fn list(
        &self,
        operation: &ReadOperation,
        walk: &mut Walk,
        answer: &Answer,
    ) -> Option<ListInfo> {
        let mut inner = self.0.lock();
        let path = operation.selection.path("");
        let Some(list) = operation.form.read(&answer.body) else {
            inner.violated("L0", format!("{path}: no list: {}", answer.text()));
            return None;
        };
        inner.checked("FM");
        if let Some(problem) =
            operation.form.page_problem(operation.selection.resource, &list, answer)
        {
            inner.violated("FM", format!("{path} from {}: {problem}", operation.target));
        }
        let revision = list.revision;
        let ended = inner.write_log.now();
        let mut problems = Vec::new();
        let mut fitting_epochs: Vec<usize> = Vec::new();
        for epoch in inner.write_log.candidates(operation.begun) {
            let state = inner.write_log.epoch(epoch).state(&operation.selection, revision);
            match page_problem(operation, &state, walk, &list) {
                None => fitting_epochs.push(epoch),
                Some(problem) => problems.push(problem),
            }
        }
        let guarantee = operation.guarantee(walk);
        inner.checked(guarantee);
        if ended.epoch > 0 {
            inner.checked("E1");
        }
        // The token of a page from before a restore means something else after it.
        if fitting_epochs.is_empty() && walk.offset > 0 && ended.epoch != operation.begun.epoch {
            return None;
        }
        let bounds = |epoch: &usize| {
            let place = (*epoch, revision);
            operation.bounds_problem(guarantee, place, ended, answer.is_hit())
        };
        // A restored state may be that of both epochs.
        let fitting = fitting_epochs.iter().find(|epoch| bounds(epoch).is_none());
        let Some(epoch) = fitting.or(fitting_epochs.first()).copied() else {
            let guarantee = inner.lost_or(
                guarantee,
                operation,
                |state| page_problem(operation, state, walk, &list).is_none(),
                revision,
            );
            let problem =
                format!("{path} from {} at {revision}: {}", operation.target, problems.join("; "));
            inner.violated(guarantee, problem);
            return None;
        };
        if walk.offset == 0
            && let Some((guarantee, what)) = bounds(&epoch)
        {
            inner.violated(guarantee, what);
        }
        let is_exact = matches!(operation.read_at, ReadAt::Exactly(_));
        if answer.is_hit() && list.token.is_empty() && walk.offset == 0 && !is_exact {
            let cache = (&operation.selection, operation.form);
            inner.raise_floor(&operation.target, cache, epoch, revision);
        }
        walk.revision = Some(revision);
        walk.offset += list.items.len();
        Some(ListInfo { revision, token: list.token, epoch })
    }

    /// Checks a GET of one object, whose answer is 200 or 404.
    pub(crate) fn get(&self, operation: &ReadOperation, key: &str, answer: &Answer) {
        let mut inner = self.0.lock();
        let guarantee = match operation.read_at {
            ReadAt::Latest | ReadAt::Exactly(_) => "GC",
            ReadAt::NotOlderThan(_) => "GN",
            ReadAt::Any => "G0",
        };
        inner.checked(guarantee);
        let ended = inner.write_log.now();
        // A forwarded read may reach an API server whose cache lags.
        let floor = if answer.is_hit() { operation.floor } else { 0 };
        let mut problem = String::new();
        for epoch in inner.write_log.candidates(operation.begun) {
            let from = match operation.read_at {
                // Within another epoch the revisions of before mean nothing.
                _ if epoch != operation.begun.epoch => 0,
                ReadAt::Latest | ReadAt::Exactly(_) => operation.begun.revision,
                ReadAt::NotOlderThan(revision) => revision.max(floor),
                ReadAt::Any => floor,
            };
            let until = if epoch == ended.epoch { ended.revision } else { u64::MAX };
            let epoch_log = inner.write_log.epoch(epoch);
            match shown_between(epoch_log, operation, key, answer, from, until) {
                Ok(()) => return,
                Err(text) => problem = text,
            }
        }
        let what = format!("{key} from {}: {problem}", operation.target);
        inner.violated(guarantee, what);
    }
}

impl ReadOperation {
    /// Returns what is wrong with the resourceVersion of a list: it is of the future, or not as new
    /// as was asked for.
    fn bounds_problem(
        &self,
        guarantee: &'static str,
        (epoch, revision): (usize, u64),
        ended: Moment,
        is_hit: bool,
    ) -> Option<(&'static str, String)> {
        let path = self.selection.path("");
        if epoch == ended.epoch && revision > ended.revision {
            return Some((guarantee, format!("{path}: {revision} is in the future")));
        }
        // Within another epoch the revisions of before mean nothing.
        if epoch != self.begun.epoch {
            return None;
        }
        let least = match self.read_at {
            ReadAt::Any => 0,
            ReadAt::NotOlderThan(revision) | ReadAt::Exactly(revision) => revision,
            ReadAt::Latest => self.begun.revision,
        };
        let what = format!("{path} from {}: {revision}", self.target);
        if revision < least {
            let what = format!("{what} is older than {least}, which was asked for");
            return Some((guarantee, what));
        }
        if let ReadAt::Exactly(wanted) = self.read_at {
            return (revision != wanted).then(|| (guarantee, format!("{what} is not {wanted}")));
        }
        let floor = self.floor;
        let is_behind = is_hit && revision < floor;
        is_behind
            .then(|| ("F", format!("{what} is older than {floor}, which this cache had shown")))
    }

    fn guarantee(&self, walk: &Walk) -> &'static str {
        match self.read_at {
            _ if walk.offset > 0 => "LP",
            ReadAt::Any => "L0",
            ReadAt::NotOlderThan(_) => "LN",
            ReadAt::Exactly(_) => "LX",
            ReadAt::Latest => "LC",
        }
    }
}

impl Inner {
    /// Returns E1 if an answer shows the state of an epoch that is lost for long, else the
    /// guarantee that does not hold.
    fn lost_or(
        &mut self,
        guarantee: &'static str,
        operation: &ReadOperation,
        is_shown: impl Fn(&[&Version]) -> bool,
        revision: u64,
    ) -> &'static str {
        let is_lost = self.write_log.lost(operation.begun).any(|epoch| {
            is_shown(&self.write_log.epoch(epoch).state(&operation.selection, revision))
        });
        if is_lost { "E1" } else { guarantee }
    }
}

/// Returns what is wrong with a page, if it is a page of this state.
fn page_problem(
    operation: &ReadOperation,
    state: &[&Version],
    walk: &Walk,
    list: &Page,
) -> Option<String> {
    if walk.revision.is_some_and(|first| first != list.revision) {
        return Some(format!("the walk began at {:?}", walk.revision));
    }
    let rest = state.get(walk.offset..).unwrap_or_default();
    for (item, version) in list.items.iter().zip(rest) {
        let problem = item.problem(operation.selection.resource, version);
        if problem.is_some() {
            return problem;
        }
    }
    if list.items.len() > rest.len() {
        return Some(format!("{} objects instead of {}", list.items.len(), rest.len()));
    }
    let left = rest.len() - list.items.len();
    if list.token.is_empty() && left > 0 {
        return Some(format!("{left} objects are missing at the end"));
    }
    let remaining = list.remaining;
    if remaining.is_some_and(|remaining| remaining != left) {
        return Some(format!("remainingItemCount is {remaining:?}, and {left} are left"));
    }
    None
}

/// Whether an answer shows an object, or its absence, as it was at some revision in a range.
fn shown_between(
    epoch: &Epoch,
    operation: &ReadOperation,
    key: &str,
    answer: &Answer,
    from: u64,
    until: u64,
) -> Result<(), String> {
    let Some(log) = epoch.log(operation.selection.resource) else {
        return if answer.status == 404 { Ok(()) } else { Err("no such object".to_owned()) };
    };
    // The body of a response ends with a newline, an object in a list or an event does not.
    let body = answer.body.strip_suffix(b"\n").unwrap_or(&answer.body);
    let resource = operation.selection.resource;
    let one = match operation.form {
        Form::Json => None,
        form => form.read_one(resource, &answer.body),
    };
    let mut at = from;
    loop {
        let version = log.version(key, at).filter(|version| !version.deleted);
        let matches = match (version, operation.form) {
            (None, _) => answer.status == 404,
            (Some(version), Form::Json) => answer.status == 200 && *body == *version.json,
            (Some(version), _) => {
                let is_same = |item: &Item| item.problem(resource, version).is_none();
                answer.status == 200 && one.as_ref().is_some_and(is_same)
            }
        };
        if matches {
            return Ok(());
        }
        match log.next_write(key, at) {
            Some(next) if next <= until => at = next,
            _ => break,
        }
    }
    let text = answer.text();
    Err(format!("status {} shows no state between {from} and {until}: {text}", answer.status))
}
