//! Compares the events of two watches with the same start, selector and form: the upstream's and
//! one of the cache. Pure.
//!
//! Events ascend by resourceVersion in both. An event counts once both watches have shown it, or
//! once the other one has claimed to have shown all up to it: by a later event, or by a bookmark.
//! Bookmarks come at different times, so that each is a claim, which what follows must not break.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::api::resource_version::ResourceVersion;

#[derive(Debug)]
pub(crate) struct EventMatcher {
    upstream: Side,
    cache: Side,
    equal: u64,
}

#[derive(Debug)]
struct Side {
    pending: VecDeque<(ResourceVersion, Bytes)>,
    /// Everything up to here was shown.
    claim: ResourceVersion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// Both show an event at this resourceVersion, with other bytes.
    Bytes { at: ResourceVersion, upstream: Bytes, cache: Bytes },
    /// Only the upstream shows an event at this resourceVersion.
    OnlyUpstream { at: ResourceVersion, upstream: Bytes },
    /// Only the cache shows an event at this resourceVersion.
    OnlyCache { at: ResourceVersion, cache: Bytes },
    /// The upstream shows an event at or below what it had claimed.
    BrokenClaim { at: ResourceVersion },
}

impl EventMatcher {
    pub(crate) fn new(after: ResourceVersion) -> Self {
        let side = || Side { pending: VecDeque::new(), claim: after };
        Self { upstream: side(), cache: side(), equal: 0 }
    }

    pub(crate) fn equal(&self) -> u64 {
        self.equal
    }

    /// Returns the upstream's oldest event that is not compared yet.
    pub(crate) fn waiting(&self) -> Option<ResourceVersion> {
        self.upstream.pending.front().map(|(at, _)| *at)
    }

    /// Returns the number of the cache's events that are not compared yet.
    pub(crate) fn ahead(&self) -> usize {
        self.cache.pending.len()
    }

    /// Returns the number of the upstream's events that are not compared yet.
    pub(crate) fn behind(&self) -> usize {
        self.upstream.pending.len()
    }

    pub(crate) fn upstream(&mut self, at: ResourceVersion, frame: Bytes) -> Result<(), Mismatch> {
        if at <= self.upstream.claim {
            return Err(Mismatch::BrokenClaim { at });
        }
        self.upstream.push(at, frame);
        self.compare()
    }

    pub(crate) fn upstream_bookmark(&mut self, at: ResourceVersion) -> Result<(), Mismatch> {
        self.upstream.claim = self.upstream.claim.max(at);
        self.compare()
    }

    pub(crate) fn cache(&mut self, at: ResourceVersion, frame: Bytes) -> Result<(), Mismatch> {
        self.cache.push(at, frame);
        self.compare()
    }

    /// Notes that the cache has shown everything up to a resourceVersion.
    pub(crate) fn cache_reached(&mut self, at: ResourceVersion) -> Result<(), Mismatch> {
        self.cache.claim = self.cache.claim.max(at);
        self.compare()
    }

    fn compare(&mut self) -> Result<(), Mismatch> {
        while let (Some(upstream), Some(cache)) =
            (self.upstream.pending.front(), self.cache.pending.front())
        {
            let ((at, upstream), (cached_at, cache)) = (upstream.clone(), cache.clone());
            if at < cached_at {
                return Err(Mismatch::OnlyUpstream { at, upstream });
            }
            if at > cached_at {
                return Err(Mismatch::OnlyCache { at: cached_at, cache });
            }
            if upstream != cache {
                return Err(Mismatch::Bytes { at, upstream, cache });
            }
            self.upstream.pending.pop_front();
            self.cache.pending.pop_front();
            self.equal += 1;
        }
        if let Some((at, upstream)) = self.upstream.pending.front()
            && *at <= self.cache.claim
        {
            return Err(Mismatch::OnlyUpstream { at: *at, upstream: upstream.clone() });
        }
        if let Some((at, cache)) = self.cache.pending.front()
            && *at <= self.upstream.claim
        {
            return Err(Mismatch::OnlyCache { at: *at, cache: cache.clone() });
        }
        Ok(())
    }
}

impl Side {
    fn push(&mut self, at: ResourceVersion, frame: Bytes) {
        self.claim = self.claim.max(at);
        self.pending.push_back((at, frame));
    }
}

impl Mismatch {
    pub(crate) fn at(&self) -> ResourceVersion {
        match self {
            Self::Bytes { at, .. }
            | Self::OnlyUpstream { at, .. }
            | Self::OnlyCache { at, .. }
            | Self::BrokenClaim { at } => *at,
        }
    }

    /// Returns the frames of the upstream and of the cache; empty where there is none.
    pub(crate) fn frames(&self) -> (Bytes, Bytes) {
        match self {
            Self::Bytes { upstream, cache, .. } => (upstream.clone(), cache.clone()),
            Self::OnlyUpstream { upstream, .. } => (upstream.clone(), Bytes::new()),
            Self::OnlyCache { cache, .. } => (Bytes::new(), cache.clone()),
            Self::BrokenClaim { .. } => (Bytes::new(), Bytes::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(at: u64) -> Bytes {
        format!("frame {at}").into()
    }

    /// Returns the frames of one watch: events, and bookmarks at numbers between them.
    fn frames_of(events: &[u64], bookmarks: &[u64]) -> Vec<(u64, bool)> {
        let mut frames: Vec<_> = events.iter().map(|at| (*at, true)).collect();
        frames.extend(bookmarks.iter().map(|at| (*at, false)));
        // A bookmark at an event's number follows the event.
        frames.sort_by_key(|(at, is_event)| (*at, !is_event));
        frames
    }

    fn run(
        upstream: &[(u64, bool)],
        cache: &[(u64, bool)],
        turns: &[bool],
    ) -> (u64, Option<Mismatch>) {
        let mut matcher = EventMatcher::new(ResourceVersion(0));
        let (mut upstream, mut cache) = (upstream.iter(), cache.iter());
        let mut turns = turns.iter().cycle();
        loop {
            let first = *turns.next().unwrap();
            let next =
                |of_upstream: bool, matcher: &mut EventMatcher, step: Option<&(u64, bool)>| {
                    let (at, is_event) = step?;
                    let at = ResourceVersion(*at);
                    Some(match (of_upstream, is_event) {
                        (true, true) => matcher.upstream(at, frame(at.0)),
                        (true, false) => matcher.upstream_bookmark(at),
                        (false, true) => matcher.cache(at, frame(at.0)),
                        (false, false) => matcher.cache_reached(at),
                    })
                };
            let mut step = |of_upstream: bool| {
                let frame = if of_upstream { upstream.next() } else { cache.next() };
                next(of_upstream, &mut matcher, frame)
            };
            match step(first).or_else(|| step(!first)) {
                None => return (matcher.equal(), None),
                Some(Err(mismatch)) => return (matcher.equal(), Some(mismatch)),
                Some(Ok(())) => {}
            }
        }
    }

    proptest! {
        /// Equal watches are equal in any interleaving and with any right bookmarks.
        #[test]
        fn equal_watches_match(
            events in prop::collection::btree_set(1..60_u64, 0..30),
            marks in prop::collection::btree_set(1..60_u64, 0..8),
            turns in prop::collection::vec(any::<bool>(), 1..20),
        ) {
            let events: Vec<_> = events.into_iter().collect();
            let marks: Vec<_> = marks.into_iter().collect();
            let last = events.last().copied().unwrap_or(0);
            let (equal, mismatch) =
                run(&frames_of(&events, &[last]), &frames_of(&events, &marks), &turns);
            prop_assert_eq!(mismatch, None);
            prop_assert_eq!(equal, events.len() as u64);
        }

        /// A lost event is found as soon as a later one or a bookmark shows that it is missing.
        #[test]
        fn a_lost_event_is_found(
            events in prop::collection::btree_set(1..60_u64, 2..30),
            lost in any::<prop::sample::Index>(),
            of_upstream in any::<bool>(),
            turns in prop::collection::vec(any::<bool>(), 1..20),
        ) {
            let whole: Vec<_> = events.iter().copied().collect();
            let mut partial = whole.clone();
            let lost = partial.remove(lost.index(whole.len()));
            let (upstream, cache) =
                if of_upstream { (&partial, &whole) } else { (&whole, &partial) };
            let (_, mismatch) = run(&frames_of(upstream, &[60]), &frames_of(cache, &[60]), &turns);
            let mismatch = mismatch.expect("a mismatch");
            prop_assert_eq!(mismatch.at(), ResourceVersion(lost));
            let is_right = if of_upstream {
                matches!(mismatch, Mismatch::OnlyCache { .. })
            } else {
                matches!(mismatch, Mismatch::OnlyUpstream { .. })
            };
            prop_assert!(is_right, "{:?}", mismatch);
        }
    }

    #[test]
    fn other_bytes_and_broken_claims_are_found() {
        let at = ResourceVersion(5);
        let mut matcher = EventMatcher::new(ResourceVersion(1));
        assert_eq!(matcher.upstream(at, frame(5)), Ok(()));
        assert_eq!(matcher.waiting(), Some(at));
        let cache = Bytes::from_static(b"other");
        let mismatch = Mismatch::Bytes { at, upstream: frame(5), cache: cache.clone() };
        assert_eq!(matcher.cache(at, cache), Err(mismatch));

        let mut matcher = EventMatcher::new(ResourceVersion(1));
        assert_eq!(matcher.upstream_bookmark(ResourceVersion(9)), Ok(()));
        assert_eq!(matcher.upstream(at, frame(5)), Err(Mismatch::BrokenClaim { at }));
        assert_eq!(matcher.cache(at, frame(5)), Err(Mismatch::OnlyCache { at, cache: frame(5) }));
    }
}
